"""Spark's checkpoint directory: a cache. One that does not fit, or does not work, is put aside."""

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

    def __init__(self, directory: Path, *, made_for: dict[str, str]) -> None:
        """`made_for`: whatever must be the same for the directory to be of use."""
        self._directory = directory
        self._made_for = made_for
        self.path = directory / "checkpoint"

    def prepare(self) -> None:
        """See to it that what is there, if anything, is for this topic and this mode."""
        self._directory.mkdir(parents=True, exist_ok=True)
        marker = self._directory / _MARKER
        if self.path.exists() and _read(marker) != self._made_for:
            self.put_aside("it is for another topic or mode")
        marker.write_text(json.dumps(self._made_for))

    @property
    def exists(self) -> bool:
        """Whether Spark would go on from it."""
        return self.path.exists()

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
