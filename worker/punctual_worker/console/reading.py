"""Read connections to the view: one for each thread, and no question without an end."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from punctual_worker.console.schema import connect

_STEPS_PER_LOOK: Final = 20_000
_CACHE_MB: Final = 4


class TooSlowError(Exception):
    """The question would take too long; it should be narrowed."""


class Reader:
    """Opens connections as threads need them. `renew` after the file was thrown away."""

    def __init__(self, path: Path, *, limit_seconds: float = 10.0) -> None:
        self._path = path
        self._limit_seconds = limit_seconds
        self._local = threading.local()

    def renew(self) -> None:
        """Forget all connections: there is another file now."""
        self._local = threading.local()

    @contextlib.contextmanager
    def reading(self, *, limit_seconds: float | None = None) -> Iterator[sqlite3.Connection]:
        """A connection of this thread; `TooSlowError` past the time limit."""
        database = getattr(self._local, "database", None)
        if database is None:
            database = connect(self._path, read_only=True, cache_mb=_CACHE_MB)
            self._local.database = database
        deadline = time.monotonic() + (limit_seconds or self._limit_seconds)
        database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_PER_LOOK)
        try:
            yield database
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            raise TooSlowError("This takes too long: narrow the search.") from error
