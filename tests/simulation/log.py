"""One partition of the actions topic, as a broker keeps it: offsets, transactions, compaction.

Knows nothing of schedules. Offsets are taken by records and by the markers that end transactions;
readers see committed records below the read-committed end, which stands still below the first
record of a transaction whose marker has not been written here yet.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from enum import Enum

from punctual_worker.contract import actions
from punctual_worker.dispatch.entries import LogRecord


class State(Enum):
    """What was decided about a transaction; its markers come later, one by one."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Stored:
    """A record in the log, the transaction it belongs to, and when it may go if a tombstone."""

    __slots__ = ("delete_at_ms", "record", "state_of")

    def __init__(self, record: LogRecord, state_of: Callable[[], State] | None) -> None:
        self.record = record
        self.state_of = state_of
        self.delete_at_ms: int | None = None

    @property
    def committed(self) -> bool:
        return self.state_of is None or self.state_of() is State.COMMITTED


class PartitionLog:
    """An actions partition."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.end = 0
        """High watermark: the offset that the next record gets."""
        self._stored: list[Stored] = []
        self._offsets: list[int] = []
        self._unstable: dict[int, int] = {}
        """First offset here of each transaction without marker, by transaction number."""
        self.compaction_key: Callable[[LogRecord], bytes] = lambda record: record.key

    def append(
        self,
        key: bytes,
        value: bytes | None,
        headers: actions.Headers,
        timestamp_ms: int,
        *,
        transaction: int | None = None,
        state_of: Callable[[], State] | None = None,
    ) -> int:
        """Write a record; its offset."""
        offset = self.end
        self.end += 1
        if transaction is not None:
            self._unstable.setdefault(transaction, offset)
        self._stored.append(Stored(LogRecord(offset, timestamp_ms, key, value, headers), state_of))
        self._offsets.append(offset)
        return offset

    def write_marker(self, transaction: int) -> None:
        """End a transaction here; a marker takes an offset of its own."""
        self._unstable.pop(transaction, None)
        self.end += 1

    @property
    def stable_end(self) -> int:
        """The read-committed end."""
        return min(self._unstable.values(), default=self.end)

    def read(
        self, start: int, limit: int, *, uncommitted: bool = False
    ) -> tuple[list[LogRecord], int]:
        """Up to `limit` records from `start` on, and the offset to go on from."""
        stop = self.end if uncommitted else self.stable_end
        records: list[LogRecord] = []
        for stored in self._stored[bisect_left(self._offsets, start) :]:
            if stored.record.offset >= stop:
                break
            if uncommitted or stored.committed:
                records.append(stored.record)
                if len(records) == limit:
                    return records, stored.record.offset + 1
        return records, max(start, stop)

    def decided(self) -> list[LogRecord]:
        """All that is committed, also where a marker is still on its way: for checks only."""
        return [stored.record for stored in self._stored if stored.committed]

    def compact(self, upto: int, now_ms: int, retention_ms: int) -> int:
        """Clean everything below `upto`: keep the last record of each key, and tombstones until
        their retention, which begins with the first cleaning, is over. How many went."""
        upto = min(upto, self.stable_end)
        last: dict[bytes, int] = {}
        for stored in self._stored:
            if stored.record.offset < upto and stored.committed:
                last[self.compaction_key(stored.record)] = stored.record.offset
        kept = [stored for stored in self._stored if self._survives(stored, upto, last, now_ms)]
        for stored in kept:
            if stored.record.offset >= upto:
                break
            if stored.record.value is None and stored.delete_at_ms is None:
                stored.delete_at_ms = now_ms + retention_ms
        gone = len(self._stored) - len(kept)
        self._stored = kept
        self._offsets = [stored.record.offset for stored in kept]
        return gone

    def _survives(self, stored: Stored, upto: int, last: dict[bytes, int], now_ms: int) -> bool:
        record = stored.record
        if record.offset >= upto:
            return True
        if not stored.committed or last[self.compaction_key(record)] != record.offset:
            return False
        return stored.delete_at_ms is None or now_ms < stored.delete_at_ms


def show(records: Sequence[LogRecord], describe: Callable[[LogRecord], str]) -> list[str]:
    """The log for a story."""
    return [f"    @{record.offset:<4} {describe(record)}" for record in records]
