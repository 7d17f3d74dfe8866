"""The jars that are not in PySpark: pinned, fetched once, verified, cached outside the project.

`jars.lock.toml` lists every jar with its checksum; nothing is resolved beyond that list, which is
why Ivy (the one inside PySpark) is told to read no POM: that takes it from 40 s to 7 s. Where the
jars come from is Ivy's own default, or what `PUNCTUAL_IVY_SETTINGS` (an Ivy settings file) says.

The location of the cache is a matter of the machine, not of an app, so it comes from the
environment here and is not one of the `Settings`.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from xml.sax.saxutils import quoteattr

from punctual_worker.errors import PunctualError
from punctual_worker.local.java import find_java

SetName = Literal["spark", "broker"]
SET_NAMES: Final[tuple[SetName, ...]] = ("spark", "broker")
_LOCK_FILE: Final = Path(__file__).with_name("jars.lock.toml")
_MARKER: Final = "verified.json"
_FETCH_TIMEOUT_SECONDS: Final = 900


class JarsError(PunctualError):
    """The jars cannot be had, or are not what was pinned."""


@dataclass(frozen=True)
class Jar:
    """One pinned jar."""

    organisation: str
    module: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the cache."""
        return f"{self.module}-{self.revision}.jar"


def default_cache_dir(environment: Mapping[str, str] | None = None) -> Path:
    """`$PUNCTUAL_CACHE_DIR`, else `$XDG_CACHE_HOME/punctual`, else `~/.cache/punctual`."""
    environment = os.environ if environment is None else environment
    if own := environment.get("PUNCTUAL_CACHE_DIR"):
        return Path(own)
    if shared := environment.get("XDG_CACHE_HOME"):
        return Path(shared) / "punctual"
    return Path.home() / ".cache" / "punctual"


def pinned_jars(set_name: SetName) -> list[Jar]:
    """What the lock file lists for a set."""
    lock = tomllib.loads(_LOCK_FILE.read_text())[set_name]
    return [
        Jar(organisation, module, revision, sha256)
        for coordinates, sha256 in lock.items()
        for organisation, module, revision in [coordinates.split(":")]
    ]


def jar_paths(set_name: SetName, *, cache_dir: Path | None = None) -> list[Path]:
    """The verified jars of a set, fetched if they are not in the cache."""
    jars = pinned_jars(set_name)
    root = (cache_dir or default_cache_dir()).absolute() / "jars"
    # the pins are in the name: another version of this program has a directory of its own
    digest = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:12]
    directory = root / f"{set_name}-{digest}"
    if not _is_verified(directory, jars):
        try:
            root.mkdir(parents=True, exist_ok=True)
            with _locked(root / f"{set_name}.lock"):
                if not _is_verified(directory, jars):  # somebody else may have fetched meanwhile
                    _fetch(set_name, jars, directory=directory)
        except OSError as error:
            raise JarsError(f"The jar cache {root} cannot be written: {error}.") from error
    return [directory / jar.file_name for jar in jars]


def pyspark_jars_dir() -> Path:
    """The jars that come with PySpark, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("PySpark is not installed: pip install 'punctual[worker]'.")
    return Path(spec.origin).parent / "jars"


def _is_verified(directory: Path, jars: list[Jar]) -> bool:
    """Cheap look: same sizes and times as when the checksums were verified, else verify again."""
    try:
        marker = json.loads((directory / _MARKER).read_text())
        for jar in jars:
            path = directory / jar.file_name
            if marker[jar.file_name] != _stamp(path) and _sha256(path) != jar.sha256:
                return False
    except (OSError, ValueError, KeyError):
        return False
    return True


def _fetch(set_name: SetName, jars: list[Jar], *, directory: Path) -> None:
    sys.stderr.write(f"fetching {len(jars)} jars ({set_name}) into {directory}\n")
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".fetch-") as scratch:
        fetched = Path(scratch) / "jars"
        _run_ivy(jars, scratch=Path(scratch))
        for jar in jars:
            path = fetched / jar.file_name
            if not path.is_file():
                raise JarsError(f"{jar.organisation}:{jar.file_name} could not be fetched.")
            if (actual := _sha256(path)) != jar.sha256:
                raise JarsError(
                    f"{jar.organisation}:{jar.file_name} is not the jar that was pinned: "
                    f"its sha256 is {actual}, want {jar.sha256}."
                )
        stamps = {jar.file_name: _stamp(fetched / jar.file_name) for jar in jars}
        (fetched / _MARKER).write_text(json.dumps(stamps, indent=1))
        shutil.rmtree(directory, ignore_errors=True)
        fetched.rename(directory)


def _run_ivy(jars: list[Jar], *, scratch: Path) -> None:
    ivy_jars = sorted(pyspark_jars_dir().glob("ivy-*.jar"))
    if not ivy_jars:
        raise JarsError(f"There is no Ivy in {pyspark_jars_dir()}: is PySpark installed whole?")
    (scratch / "ivy.xml").write_text(_ivy_module(jars))
    (scratch / "settings.xml").write_text(_ivy_settings(scratch / "ivy-cache"))
    settings = os.environ.get("PUNCTUAL_IVY_SETTINGS") or str(scratch / "settings.xml")
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", f"-Divy.home={scratch / 'home'}"]
    command += ["-cp", str(ivy_jars[0]), "org.apache.ivy.Main", "-settings", settings]
    command += ["-cache", str(scratch / "ivy-cache"), "-ivy", str(scratch / "ivy.xml")]
    command += ["-retrieve", f"{scratch}/jars/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(  # noqa: S603 all arguments are ours
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise JarsError(
            f"Fetching the jars took more than {_FETCH_TIMEOUT_SECONDS} s: is the network up?"
        ) from None
    if done.returncode != 0:
        raise JarsError(f"The jars could not be fetched: {_ivy_complaint(done.stdout)}.")


def _ivy_complaint(output: str) -> str:
    """The lines that tell: Ivy prints pages."""
    signs = ("UNRESOLVED DEPENDENCY", "FAILED DOWNLOAD", "SERVER ERROR", "Exception", "not found")
    lines = [line.strip(" \t:") for line in output.splitlines() if any(s in line for s in signs)]
    return "; ".join(dict.fromkeys(lines[:5])) or output.strip()[-500:] or "Ivy said nothing"


def _ivy_module(jars: list[Jar]) -> str:
    dependencies = "\n".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.module)} "
        f'rev={quoteattr(jar.revision)} conf="default" transitive="false">'
        f'<artifact name={quoteattr(jar.module)} type="jar"/></dependency>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="dev.punctual" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_settings(cache: Path) -> str:
    """Ivy's built-in public repository, without POMs and without SHA-1s: we have better ones."""
    return (
        '<ivysettings><settings defaultResolver="public"/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/><resolvers>"
        '<ibiblio name="public" m2compatible="true" usepoms="false" checksums=""/>'
        "</resolvers></ivysettings>"
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Fetch every set, for `make setup`, which is also where a missing Java is told."""
    try:
        find_java()
        for set_name in SET_NAMES:
            jar_paths(set_name)
    except PunctualError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
