"""Our images, built from our Dockerfiles with buildah: no container engine, no image registry.

What the Dockerfiles start from is made here with debootstrap, and gets what this machine trusts
and where it takes its packages from, as the base image of a company with a mirror of its own would.
The images are cached as archives, under a name that tells what they were built from; an unchanged
step of a Dockerfile is not run again.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from punctual_worker.local.jars import default_cache_dir

ROOT = Path(__file__).parents[3]
TAG = "e2e"
_BASE = f"localhost/punctual-base:{TAG}"
_SUITE = "bookworm"
# what a build inside the base image needs of the machine that it is made on
_FROM_THIS_MACHINE = (
    "etc/apt/sources.list",
    "etc/apt/sources.list.d",
    "etc/apt/apt.conf.d",
    "etc/pip.conf",
    "usr/local/share/ca-certificates",
)
_KEPT_ARCHIVES = 6


class ImageError(Exception):
    """An image could not be built; the text says which, and where its log is."""


@dataclass(frozen=True)
class Image:
    """A name that a pod can use, and the archive that containerd takes it from."""

    name: str
    archive: Path


@dataclass(frozen=True)
class Images:
    """What the node of the end-to-end test has to have."""

    pause: Image
    operator: Image
    worker: Image


def find_images(tell: Callable[[str], object] = lambda _: None) -> Images:
    """All of them, built if they are not in the cache."""
    root = default_cache_dir().absolute() / "images"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(root / "build.lock"):
        builder = _Builder(root, tell)
        images = Images(
            pause=builder.pause(), operator=builder.ours("operator"), worker=builder.ours("worker")
        )
        builder.forget_older()
    return images


class _Builder:
    def __init__(self, root: Path, tell: Callable[[str], object]):
        self._root = root
        self._tell = tell
        self._log = root / "build.log"
        self._log.write_bytes(b"")
        # buildah wants one, and Debian's packages may come without
        self._policy = root / "policy.json"
        self._policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')

    def pause(self) -> Image:
        """What holds a pod's network. A sleeping process is enough: nobody asks it to reap."""
        image = self._image("pause", hashlib.sha256(b"sleep").hexdigest())
        if not image.archive.exists():
            self._tell("building the image pause")
            self._need_base()
            container = self._buildah("from", "--pull-never", _BASE)
            self._buildah("config", "--entrypoint", '["/bin/sleep", "infinity"]', container)
            self._buildah("commit", "--quiet", "--rm", container, image.name)
            self._save(image)
        return image

    def ours(self, part: str) -> Image:
        """`operator` or `worker`."""
        image = self._image(part, _fingerprint(part))
        if not image.archive.exists():
            self._tell(f"building the image {part}")
            self._need_base()
            build = ("bud", "--layers", "--pull-never", "--build-arg", f"BASE_IMAGE={_BASE}")
            build += ("--file", str(ROOT / part / "Dockerfile"), "--tag", image.name, str(ROOT))
            self._buildah(*build, log_output=True)
            self._save(image)
        return image

    def forget_older(self) -> None:
        archives = sorted(self._root.glob("*.tar"), key=lambda path: path.stat().st_mtime)
        for path in archives[:-_KEPT_ARCHIVES]:
            path.unlink()

    def _image(self, part: str, fingerprint: str) -> Image:
        archive = self._root / f"{part}-{fingerprint[:16]}.tar"
        if archive.exists():
            archive.touch()
        return Image(f"localhost/punctual-{part}:{TAG}", archive)

    def _need_base(self) -> None:
        if self._buildah("images", "--quiet", "--filter", f"reference={_BASE}"):
            return
        self._tell("making the base image with debootstrap")
        with tempfile.TemporaryDirectory(dir=self._root, prefix=".base-") as scratch:
            system = Path(scratch) / "system"
            self._run("debootstrap", "--variant=minbase", _SUITE, str(system), log_output=True)
            shutil.rmtree(system / "var/cache/apt/archives")
            for name in _FROM_THIS_MACHINE:
                _copy(Path("/", name), system / name)
            container = self._buildah("from", "scratch")
            self._buildah("add", "--quiet", container, str(system), "/")
            self._buildah("config", "--env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", container)
            self._buildah("commit", "--quiet", "--rm", container, _BASE)

    def _save(self, image: Image) -> None:
        partial = image.archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        self._buildah("push", "--quiet", image.name, f"docker-archive:{partial}:{image.name}")
        partial.rename(image.archive)

    def _buildah(self, *words: str, log_output: bool = False) -> str:
        buildah = ("buildah", "--storage-driver", _storage_driver())
        buildah += ("--root", str(self._root / "storage"), "--runroot", str(self._root / "run"))
        command, *others = words
        flags = []
        if command in ("from", "bud"):
            # containers of a build need no namespaces: whoever runs this is root anyway
            flags += ["--isolation", "chroot"]
        if command in ("from", "bud", "commit", "push"):
            flags += ["--signature-policy", str(self._policy)]
        return self._run(*buildah, command, *flags, *others, log_output=log_output)

    def _run(self, *command: str, log_output: bool = False) -> str:
        with self._log.open("ab") as log:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log if log_output else subprocess.PIPE,
                stderr=log,
                check=False,
            )
        if done.returncode != 0:
            last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
            raise ImageError(f"`{' '.join(command)}` failed: {''.join(last)} (see {self._log})")
        return "" if log_output else done.stdout.decode().strip()


def _storage_driver() -> str:
    """Without overlay every layer is a whole copy, which works as well."""
    known = Path("/proc/filesystems").read_text().split()
    return "overlay" if "overlay" in known else "vfs"


def _fingerprint(part: str) -> str:
    """Of all that goes into an image: what .dockerignore lets in, and the Dockerfile itself."""
    digest = hashlib.sha256((ROOT / part / "Dockerfile").read_bytes())
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            for path in _files(ROOT / line[1:]):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(
        each for each in path.rglob("*") if each.is_file() and "__pycache__" not in each.parts
    )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    elif target.is_file():
        os.unlink(target)  # debootstrap's own list of sources beside another one


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
