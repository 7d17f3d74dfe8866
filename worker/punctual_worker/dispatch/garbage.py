"""When what is no longer needed is let go: not while messages wait to be delivered.

A turn makes tens of thousands of objects and no cycles. Letting go of them takes about as long as
making them ready did, so it is done in small pieces while Kafka works. Python's search for cycles
would look at all of them again and again, for tens of milliseconds each time: it is switched off,
and done by hand when nothing is due.
"""

import ctypes
import gc
from typing import Any, Final

_PIECE: Final = 500
_MOST: Final = 100_000
_SEARCH_EVERY_MS: Final = 60_000
_SEARCH_NEGLECT_MS: Final = 900_000
"""Searched so often even if something is always due."""


_TRIM_THRESHOLD: Final = -1
"""glibc's M_TRIM_THRESHOLD."""
_KEPT_BYTES: Final = 64 * 1024 * 1024


def search_by_hand() -> None:
    """From now on; what is there is there for good."""
    gc.collect()
    gc.freeze()
    gc.disable()


def keep_buffers() -> None:
    """Do not give memory back that Kafka's client has used for a burst: to get it again, page by
    page, takes a fifth of the time in which the next one is handed over."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # only glibc has it
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


class Garbage:
    """Lists whose contents nobody needs any more."""

    def __init__(self) -> None:
        self._lists: list[list[Any]] = []
        self._size = 0
        self._searched_ms = 0

    def take(self, *lists: list[Any]) -> None:
        """Let go of these, later; what is too much goes at once."""
        self._lists += [one for one in lists if one]
        self._size = sum(map(len, self._lists))
        while self.step(most=_MOST):
            pass

    def step(self, *, most: int) -> bool:
        """Let go of a little if there is more than `most`; whether there still is."""
        if self._size <= most:
            return False
        last = self._lists[-1]
        self._size -= min(_PIECE, len(last))
        del last[-_PIECE:]
        if not last:
            self._lists.pop()
        return self._size > most

    def search(self, now_ms: int, *, quiet: bool) -> None:
        """Search for cycles, if it is time to; best when it is quiet."""
        if now_ms - self._searched_ms > (_SEARCH_EVERY_MS if quiet else _SEARCH_NEGLECT_MS):
            self._searched_ms = now_ms
            gc.collect()
