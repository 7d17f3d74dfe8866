"""What a real node leaves on its machine outside any folder: a bridge, cgroups, mounts, shims.

All of it has names of our own, so that it can be found and taken away again, also what a run left
that was killed, and so that nothing is touched that belongs to somebody else's node.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NAME = "punctual-e2e"
RUN = Path("/run") / NAME
"""Sockets and state of what runs: paths of sockets must be short."""
BRIDGE = "punctual0"
ADDRESS = "10.213.87.1"
"""This machine as its pods see it. They have no route to anywhere else."""
SUBNET = "10.213.87.0/24"
FIRST_POD, LAST_POD = "10.213.87.10", "10.213.87.250"
CGROUP_PARENT = f"/{NAME}"
_CGROUPS = Path("/sys/fs/cgroup")
_GONE_SECONDS = 20


@contextlib.contextmanager
def prepared_host(folder: Path) -> Iterator[None]:
    """Bridge and cgroups are there inside, and nothing of a node is left after it."""
    RUN.mkdir(mode=0o700, exist_ok=True)
    with (RUN / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError("another run of this test uses this machine") from None
        clear_host(folder)
        try:
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")
            for group in _own_cgroups():
                group.mkdir()
                _inherit_cpuset(group)
            yield
        finally:
            clear_host(folder)
    (RUN / "lock").unlink()
    RUN.rmdir()


def clear_host(folder: Path) -> None:
    """Take everything away; what is not there is fine."""
    for pid in shims():
        _kill(pid)
    for pid in _in_cgroups():
        _kill(pid)
    deadline = time.monotonic() + _GONE_SECONDS
    while (shims() or _in_cgroups()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for mount in mounts(folder):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    if bridge_exists():
        _ip("link", "delete", BRIDGE)
    for group in cgroups():
        _remove_cgroup(group)
    for path in RUN.glob("*") if RUN.exists() else ():
        if path.name != "lock":
            subprocess.run(["rm", "-rf", "--one-file-system", str(path)], check=True)


def left_behind(folder: Path) -> dict[str, list[str]]:
    """What is still there of a node; empty when all is gone."""
    found = {
        "processes": [str(pid) for pid in shims()],
        "mounts": mounts(folder),
        "cgroups": [str(path) for path in cgroups()],
        "bridge": [BRIDGE] if bridge_exists() else [],
        "sockets": [str(RUN)] if RUN.exists() else [],
    }
    return {kind: things for kind, things in found.items() if things}


def shims() -> list[int]:
    """Each pod's containers hang on a process of containerd that outlives containerd itself."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                ours = any(word.startswith(bytes(RUN)) for word in words)
                if b"containerd-shim" in words[0] and ours:
                    found.append(int(entry.name))
    return found


def mounts(folder: Path) -> list[str]:
    """Below the node's folders; the innermost first."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    roots = (f"{folder}/", f"{RUN}/")
    return sorted((place for place in places if place.startswith(roots)), reverse=True)


def cgroups() -> list[Path]:
    """Ours, in each hierarchy where it is."""
    return [group for group in _own_cgroups() if group.exists()]


def bridge_exists() -> bool:
    return Path("/sys/class/net", BRIDGE).exists()


def _own_cgroups() -> list[Path]:
    if (_CGROUPS / "cgroup.controllers").exists():  # version 2
        return [_CGROUPS / NAME]
    hierarchies = [path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]
    return [path / NAME for path in hierarchies if (path / "cgroup.procs").exists()]


def _inherit_cpuset(group: Path) -> None:
    """A new one of version 1 has neither processors nor memory, and nothing could run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        with contextlib.suppress(FileNotFoundError):
            if not (group / name).read_text().strip():
                (group / name).write_text((group.parent / name).read_text())


def _in_cgroups() -> list[int]:
    found: set[int] = set()
    for group in cgroups():
        for path in group.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                found |= {int(line) for line in path.read_text().split()}
    return sorted(found)


def _remove_cgroup(group: Path) -> None:
    for path in sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True):
        path.rmdir()
    group.rmdir()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
