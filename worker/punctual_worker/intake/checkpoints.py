"""Spark's checkpoint directory: a cache. One that does not fit, or does not work, is put aside.

Where the group's offsets tell the place, they count and the directory is begun anew: there is one
truth, also for a directory that was left behind on another machine or came from a backup.
"""

import json
import logging
import shutil
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)
_ASIDE: Final = "unusable"
_MARKER: Final = "made-for.json"


class Checkpoints:
    """The directory for one app id, with a note of what it was made for."""

    def __init__(self, directory: Path) -> None:
        """Nothing is looked at yet."""
        self._directory = directory
        self.path = directory / "checkpoint"

    def prepare(self, made_for: dict[str, str]) -> None:
        """`made_for`: whatever must be the same for what is there, if anything, to be of use."""
        self._directory.mkdir(parents=True, exist_ok=True)
        marker = self._directory / _MARKER
        if self.path.exists() and _read(marker) != made_for:
            self.put_aside("it is for other topics or another mode")
        marker.write_text(json.dumps(made_for))

    @property
    def exists(self) -> bool:
        """Whether Spark would go on from it."""
        return self.path.exists()

    def begin_anew(self) -> None:
        """Spark is not to go on from it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def put_aside(self, reason: str) -> None:
        """Keep it for a look, out of the way; only the last one is kept."""
        aside = self._directory / _ASIDE
        shutil.rmtree(aside, ignore_errors=True)
        self.path.rename(aside)
        _log.warning(
            "checkpoint put aside as %s because %s; going on from the group's offsets",
            *(aside, reason),
        )


def _read(marker: Path) -> object:
    try:
        return json.loads(marker.read_text())
    except (OSError, ValueError):
        return None
