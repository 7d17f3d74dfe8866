"""The programs of a real control plane: built once from `kubelite/`, or the user's own.

Building takes minutes of CPU, so a test run that will need it starts this file as a program in the
background, at the lowest priority, while the other tests run; a test that needs the programs waits
on the same lock. The result is cached outside the clone, under a name that tells what it was built
from. `KUBEBUILDER_ASSETS` (envtest's convention) is taken instead where it names a folder with
etcd, kube-apiserver, kube-controller-manager and kubectl.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from punctual_worker.local import tether
from punctual_worker.local.jars import default_cache_dir

SOURCES = Path(__file__).with_name("kubelite")
NODE_SOURCES = Path(__file__).with_name("kubenode")
ASSETS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
KUBERNETES_VERSION = "v1.36.3"
# no optimisation, no inlining, no debug information: the programs run for seconds
_COMPILER_FLAGS = "all=-N -l -dwarf=false"
_KEEP_UNUSED_DAYS = 30


class MissingBinariesError(Exception):
    """There is no control plane on this machine, and nothing to build one with."""


class BuildError(Exception):
    """Everything needed was there, but the build went wrong."""


@dataclass(frozen=True)
class Binaries:
    """How each program is called: its path, and the words that come first."""

    etcd: tuple[str, ...]
    apiserver: tuple[str, ...]
    controllers: tuple[str, ...]
    kubectl: tuple[str, ...]


def find_binaries(environment: Mapping[str, str] | None = None) -> Binaries:
    """The user's own programs, else ours, which are built if they are not in the cache."""
    environment = os.environ if environment is None else environment
    assets = environment.get("KUBEBUILDER_ASSETS")
    lacking = _lacking(assets)
    if assets and not lacking:
        return _from_assets(Path(assets))
    try:
        return _from_kubelite(_built(environment, SOURCES))
    except MissingBinariesError as error:
        if assets:
            raise MissingBinariesError(
                f"{error} KUBEBUILDER_ASSETS={assets} has no {' and no '.join(lacking)}."
            ) from None
        raise


def find_node_program(environment: Mapping[str, str] | None = None) -> Path:
    """kubelet and scheduler of a real node, built if they are not in the cache.

    Before the control plane, if that has to be built as well: two thirds of what is compiled for
    one is also in the other.
    """
    environment = os.environ if environment is None else environment
    return _built(environment, NODE_SOURCES, keep_compiled=not is_at_hand(environment))


def _lacking(assets: str | None) -> list[str]:
    folder = Path(assets or "/nowhere")
    return [name for name in ASSETS if not os.access(folder / name, os.X_OK)]


def _from_assets(folder: Path) -> Binaries:
    program = {name: str(folder / name) for name in ASSETS}
    controllers = (
        program["kube-controller-manager"],
        *("--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"),
    )
    return Binaries(
        etcd=(program["etcd"],),
        apiserver=(program["kube-apiserver"],),
        controllers=controllers,
        kubectl=(program["kubectl"],),
    )


def _from_kubelite(program: Path) -> Binaries:
    return Binaries(
        *((str(program), name) for name in ("etcd", "kube-apiserver", "controllers", "kubectl"))
    )


def _cached(environment: Mapping[str, str], sources: Path) -> Path:
    root = default_cache_dir(environment).absolute() / "kubernetes"
    return root / _fingerprint(sources) / sources.name


def _built(environment: Mapping[str, str], sources: Path, *, keep_compiled: bool = False) -> Path:
    program = _cached(environment, sources)
    if not program.exists():
        go = shutil.which("go", path=environment.get("PATH", os.defpath))
        if go is None:
            raise MissingBinariesError(
                "Go was not found, which builds the control plane of these tests: install Go "
                f"1.26 or newer, or set KUBEBUILDER_ASSETS to a folder with {', '.join(ASSETS)}."
            )
        root = program.parent.parent
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / "build.lock"):
            if not program.exists():  # the one we waited for may have built it
                _build(go, sources, program=program, environment=environment)
                if not keep_compiled:
                    shutil.rmtree(root / "go-build", ignore_errors=True)
    program.parent.touch()
    return program


def _fingerprint(sources: Path) -> str:
    digest = hashlib.sha256(_COMPILER_FLAGS.encode())
    for path in sorted(sources.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(go: str, original: Path, *, program: Path, environment: Mapping[str, str]) -> None:
    root = program.parent.parent
    sources, log = root / "sources", root / "build.log"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(original, sources)  # go may write to go.sum, and the clone is not its place
    log.write_bytes(b"")
    # a cache of its own, which outlives an interrupted build but not a finished one: 2 GB
    go_environment = {
        **environment,
        "CGO_ENABLED": "0",
        "GOCACHE": str(root / "go-build"),
        "GOFLAGS": "-buildvcs=false",
    }
    there = ("-C", str(sources))
    if not _run(go, *there, "mod", "download", environment=go_environment, log=log):
        raise MissingBinariesError(
            "The control plane of these tests cannot be built, because `go mod download` failed: "
            f"{_last_line(log)}."
        )
    built = sources / program.name
    build = (*there, "build", "-trimpath", f"-gcflags={_COMPILER_FLAGS}")
    build += ("-ldflags", _linker_flags(), "-o", str(built), ".")
    if not _run(go, *build, environment=go_environment, log=log):
        raise BuildError(f"{program.name} could not be built: {_last_line(log)} (see {log}).")
    program.parent.mkdir(exist_ok=True)
    built.rename(program)
    shutil.rmtree(sources, ignore_errors=True)
    _forget_older(program.parent)


def _run(go: str, *words: str, environment: Mapping[str, str], log: Path) -> bool:
    with log.open("ab") as output:
        process = tether.spawn(
            [go, *words], death_signal=signal.SIGTERM, output=output, environment=environment
        )
    try:
        return process.wait() == 0
    finally:
        tether.stop(process, timeout=30)


def _linker_flags() -> str:
    """Without the version kubectl and helm cannot read what the server says it is."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    told = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor}
    flags = ["-s", "-w", "-X k8s.io/component-base/version.gitTreeState=clean"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        flags += [f"-X {package}.{name}={value}" for name, value in told.items()]
    return " ".join(flags)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _forget_older(current: Path) -> None:
    """Other versions of these programs are kept while somebody used them this month."""
    for folder in current.parent.iterdir():
        old = time.time() - folder.stat().st_mtime > _KEEP_UNUSED_DAYS * 86_400
        if folder.is_dir() and folder != current and old:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_at_hand(environment: Mapping[str, str] | None = None) -> bool:
    """Whether `find_binaries` would return at once."""
    environment = os.environ if environment is None else environment
    lacking = _lacking(environment.get("KUBEBUILDER_ASSETS"))
    return _cached(environment, SOURCES).exists() or not lacking


def main() -> int:
    """Build ahead, in the background. What goes wrong is told by the tests that need it."""
    os.nice(19)
    with contextlib.suppress(MissingBinariesError, BuildError):
        find_binaries()
    return 0


if __name__ == "__main__":
    sys.exit(main())
