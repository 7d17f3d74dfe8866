"""Seeing what became of a request that was just produced, as the follower reads it from the logs.

A watch is opened before the request is produced, because its effect may be read before the
producer knows where the request stands. Until it is told, a watch remembers everything.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple, Self

from punctual_worker.console.rows import PendingRow, RejectionRow

_MOST_REMEMBERED: Final = 200_000


class Taken(NamedTuple):
    """The action that intake made from the request."""

    partition: int
    offset: int
    row: PendingRow | None
    """None for a CANCEL."""


News = Taken | RejectionRow | int
"""An action, a rejection, or the due time of a tombstone."""


class Seen:
    """All that is known of one request so far."""

    def __init__(self) -> None:
        self.taken: Taken | None = None
        self.gone_due: int | None = None
        """Due time of its tombstone: it was decided, or has fired."""
        self.rejection: RejectionRow | None = None
        self.rearmed: PendingRow | None = None
        """The dispatcher could not deliver it and will try again."""


class Watch:
    """Collects until `aim` says which request is meant."""

    def __init__(self, effects: "Effects") -> None:
        self._effects = effects
        self._by_key: dict[str, Seen] = {}
        self._by_source: dict[str, RejectionRow] = {}
        self._key: str | None = None
        self._about: str | None = None
        self._source = ""

    @property
    def seen(self) -> Seen:
        """What is known of the request that was aimed at."""
        seen = self._by_key.setdefault(self._key or "", Seen())
        seen.rejection = self._by_source.get(self._source)
        return seen

    @property
    def rearmed(self) -> PendingRow | None:
        """What the dispatcher last made of the schedule that the request is about, if anything."""
        return self._by_key[self._about].rearmed if self._about in self._by_key else None

    def aim(self, *, action_key: str, source: str, about: str | None = None) -> None:
        """Only this request from now on, and the schedule that it is about."""
        with self._effects.lock:
            self._key, self._source, self._about = action_key, source, about
            wanted = (action_key, about)
            self._by_key = {k: seen for k, seen in self._by_key.items() if k in wanted}

    def wait(self, ready: Callable[[Seen], bool], *, deadline: float) -> bool:
        """Until `ready`, which is asked at each change and now and then; false when too late."""
        with self._effects.lock:
            while not ready(self.seen):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._effects.lock.wait(min(left, 0.05))
            return True

    def remember(self, key: str) -> Seen | None:
        """Where to write down what happens to this key; None if nobody cares."""
        if self._key is not None and key not in (self._key, self._about):
            return None
        if len(self._by_key) > _MOST_REMEMBERED:
            return None
        return self._by_key.setdefault(key, Seen())

    def reject(self, row: RejectionRow) -> None:
        """A request was rejected."""
        if self._key is None or row.source == self._source:
            self._by_source[row.source] = row

    def __enter__(self) -> Self:
        """Begin to watch."""
        with self._effects.lock:
            self._effects.watches.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Watch no longer."""
        with self._effects.lock:
            self._effects.watches.remove(self)


class Effects:
    """Between the follower, which tells, and the writers, which wait."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self._news: list[tuple[str, News]] = []
        """Read, but not in the view yet: only the follower's thread looks at it."""
        self.watches: list[Watch] = []

    def watch(self) -> Watch:
        """To be used in a `with` statement around producing the request."""
        return Watch(self)

    def taken(self, key: str, partition: int, offset: int, row: PendingRow | None) -> None:
        """An action was read."""
        if self.watches:
            self._news.append((key, Taken(partition, offset, row)))

    def gone(self, key: str, due: int) -> None:
        """A tombstone was read."""
        if self.watches:
            self._news.append((key, due))

    def rejected(self, row: RejectionRow) -> None:
        """A rejection was read."""
        if self.watches:
            self._news.append(("", row))

    def tell(self) -> None:
        """All that was read is in the view now: pass it on, and wake the waiting."""
        with self.lock:
            for key, news in self._news:
                for watch in self.watches:
                    _write_down(watch, key, news)
            self._news.clear()
            self.lock.notify_all()


def _write_down(watch: Watch, key: str, news: News) -> None:
    if isinstance(news, RejectionRow):
        watch.reject(news)
        return
    seen = watch.remember(key.partition("#")[0])
    if seen is None:
        return
    if isinstance(news, int):
        if "#" not in key:
            seen.gone_due = news
    elif "#" in key:
        seen.rearmed = news.row
    else:
        seen.taken = news
