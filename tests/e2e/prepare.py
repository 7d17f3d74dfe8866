"""What `make e2e` needs, installed and built before the test: minutes at first, seconds later."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.kubernetes.binaries import (
    BuildError,
    MissingBinariesError,
    find_binaries,
    find_node_program,
)
from support.kubernetes.images import ImageError, find_images

# a file that is there once a Debian package is installed
PACKAGES = {
    "containerd": "/usr/bin/containerd",
    "runc": "/usr/sbin/runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "buildah": "/usr/bin/buildah",
    "debootstrap": "/usr/sbin/debootstrap",
    "iproute2": "/usr/bin/ip",
    "iptables": "/usr/sbin/iptables",
}


class PackagesError(Exception):
    """Something is lacking that we may not or cannot install."""


def install_packages() -> None:
    lacking = [name for name, path in PACKAGES.items() if not Path(path).exists()]
    if not lacking:
        return
    if shutil.which("apt-get") is None:
        raise PackagesError(f"Please install {', '.join(lacking)}: there is no apt-get here.")
    _tell(f"installing {', '.join(lacking)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *lacking]):
        done = subprocess.run(
            ["apt-get", "-qq", *words], env=quiet, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PackagesError(f"apt-get {words[0]} failed: {done.stderr.strip()[-1000:]}")


def main() -> int:
    if os.geteuid() != 0:
        _tell("A real node needs root: sudo make e2e")
        return 2
    try:
        install_packages()
        _tell("building kubelet and control plane, if they are not in the cache")
        find_node_program()
        find_binaries()
        find_images(_tell)
    except (PackagesError, MissingBinariesError, BuildError, ImageError) as error:
        _tell(str(error))
        return 1
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
