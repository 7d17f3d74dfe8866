"""Local stores of the simulated dispatchers: the table in memory, and what a disk does to it."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from punctual_worker.dispatch.deliveries import deliver, pack
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.table import Changes, Stretch

_MOST = 3


class MemoryTable:
    """`Table` of the dispatcher, on a sorted list."""

    def __init__(self) -> None:
        self._rows: dict[bytes, Entry | None] = {}
        self._orders: list[bytes] = []
        self._by_id: dict[str, list[bytes]] = {}
        self._position = 0

    @property
    def position(self) -> int:
        return self._position

    def find(self, request_id: str) -> Sequence[bytes]:
        return tuple(self._by_id.get(request_id, ()))

    def get(self, order: bytes) -> Entry | None:
        return self._rows.get(order)

    def read(self, *, start: bytes, until: bytes, most: int, most_bytes: int) -> Stretch:
        first, last = bisect_left(self._orders, start), bisect_left(self._orders, until)
        # A few at a time, marks among them, so that worlds of some dozen rows see many stretches,
        # and some with nothing in them.
        looked_at = self._orders[first : min(last, first + most, first + _MOST)]
        orders = [order for order in looked_at if self._rows[order] is not None]
        rows = [
            pack(deliver(row, requests_topic="requests", trace=False))
            for row in map(self._rows.get, orders)
            if row is not None
        ]
        is_all = first + len(looked_at) >= last
        return Stretch(orders, rows, until if is_all else looked_at[-1] + b"\0")

    def first_after(self, order: bytes) -> bytes | None:
        index = bisect_right(self._orders, order)
        return self._orders[index] if index < len(self._orders) else None

    def fired(self, *, until: bytes, limit: int) -> list[tuple[bytes, str]]:
        found = self._orders[: min(bisect_right(self._orders, until), limit)]
        return [(order, self._request_id(order)) for order in found]

    def write(self, changes: Changes, *, position: int) -> None:
        for order in changes.removes:
            self._remove(order)
        for order, entry in changes.puts.items():
            self._remove(order)
            insort(self._orders, order)
            self._rows[order] = entry
            if entry is not None and entry.plan.request_id:
                self._by_id.setdefault(entry.plan.request_id, []).append(order)
        self._position = position

    def clear(self) -> None:
        self.__init__()

    def copy(self) -> "MemoryTable":
        """As it is now."""
        twin = MemoryTable()
        twin._rows = dict(self._rows)
        twin._orders = list(self._orders)
        twin._by_id = {request_id: list(orders) for request_id, orders in self._by_id.items()}
        twin._position = self._position
        return twin

    def content(self) -> tuple[int, dict[bytes, Entry | None]]:
        """Everything, for comparisons."""
        return self._position, dict(self._rows)

    def pending(self, cursor: bytes) -> dict[bytes, Entry]:
        """What is yet to fire, by action key."""
        rows = (self._rows[order] for order in self._orders[bisect_right(self._orders, cursor) :])
        return {row.key: row for row in rows if row is not None}

    def _request_id(self, order: bytes) -> str:
        row = self._rows[order]
        return row.plan.request_id if row is not None else ""

    def _remove(self, order: bytes) -> None:
        if order not in self._rows:
            return
        request_id = self._request_id(order)
        if request_id:
            self._by_id[request_id].remove(order)
        del self._rows[order]
        del self._orders[bisect_left(self._orders, order)]


class Kept:
    """A table on disk, and the moment up to which it is known to follow the log."""

    def __init__(self, table: MemoryTable, followed_ms: int) -> None:
        self.table = table
        self.followed_ms = followed_ms

    def copy(self) -> "Kept":
        return Kept(self.table.copy(), self.followed_ms)


class LocalStore:
    """A dispatcher's disk: one table per partition, which may get lost or come back old.

    A table that has not followed the log for longer than `max_age_ms` is thrown away: tombstones
    that it never saw may be gone. `followed_ms` is the clock when the reading or the turn *began*
    that brought the table up to date, never the moment of a write.
    """

    def __init__(self, max_age_ms: int) -> None:
        self.max_age_ms = max_age_ms
        self._kept: dict[int, Kept] = {}
        self._backups: dict[int, Kept] = {}

    def open(self, partition: int, now_ms: int) -> MemoryTable:
        """The partition's table, empty if there is none that can be trusted."""
        kept = self._kept.get(partition)
        if kept is None or now_ms - kept.followed_ms > self.max_age_ms:
            kept = self._kept[partition] = Kept(MemoryTable(), now_ms)
        return kept.table

    def followed(self, partition: int, since_ms: int) -> None:
        """The table stands where the log stood at `since_ms` or later."""
        self._kept[partition].followed_ms = since_ms

    def back_up(self, partition: int) -> None:
        """Keep a copy that may come back later."""
        if partition in self._kept:
            self._backups[partition] = self._kept[partition].copy()

    def go_back(self) -> None:
        """Old copies come back."""
        self._kept = {partition: kept.copy() for partition, kept in self._backups.items()}

    def lose(self) -> None:
        """The disk is gone."""
        self._kept = {}
