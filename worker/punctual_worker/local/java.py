"""Finds a Java that the broker and Spark can run on."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from punctual_worker.errors import PunctualError

MIN_VERSION: Final = 17
_WANTED: Final = (
    f"Java {MIN_VERSION} or newer is needed: install a JDK or JRE and put it on PATH, "
    "or set JAVA_HOME to it"
)


class JavaError(PunctualError):
    """There is no Java, or none that is new enough."""


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` program: from JAVA_HOME if that is set, else from PATH."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaError(f"JAVA_HOME is {home!r} but there is no program {java}. {_WANTED}.")
    else:
        found = shutil.which("java", path=environment.get("PATH", os.defpath))
        if found is None:
            raise JavaError(f"Java was not found. {_WANTED}.")
        java = Path(found)
    version = _version(java)
    if version < MIN_VERSION:
        raise JavaError(f"{java} is Java {version}, which is too old. {_WANTED}.")
    return java


def _version(java: Path) -> int:
    """The major version: 8 for `1.8.0_392`, 17 for `17.0.15`."""
    try:
        done = subprocess.run(  # noqa: S603 the program the user pointed us at
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{java} does not run: {error}. {_WANTED}.") from error
    said = done.stderr + done.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None:
        first = said.strip().splitlines()[:1] or [f"exit status {done.returncode}"]
        raise JavaError(f"{java} does not tell its version ({first[0]}). {_WANTED}.")
    return int(match[1])
