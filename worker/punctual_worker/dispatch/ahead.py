"""What is due next, read and made ready before its time. Pure.

When ten thousand messages fall due at one instant, reading them from disk would take as long as
sending them. So the next ones of a partition are kept in memory as they are delivered: a window on
the table that begins after the cursor. It is kept in lists beside each other, because a slice of a
list costs next to nothing, and filled without a look at each message.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Set
from itertools import accumulate
from typing import Final, NamedTuple

from punctual_worker.dispatch.deliveries import (
    DESTINATION,
    Delivery,
    any_unusual,
    destination_of,
    is_odd,
    row_bytes,
    unpack,
)
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.table import Changes, Table

_CHUNK: Final = 500
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_MANY: Final = 100
"""So many new rows inside the window are read from the table again rather than sorted in."""


class Run(NamedTuple):
    """Deliveries that follow each other."""

    deliveries: list[Delivery]
    last: bytes
    """Order key of the last one."""
    row_bytes: int
    destinations: Set[str]
    """All of theirs, and perhaps some others."""
    goes_on: bool
    """Whether it ends where the window ends, so that what is read further may belong to it."""


class ReadAhead:
    """All rows of the table from the cursor to the window's end, as deliveries."""

    def __init__(self, table: Table, *, cursor: bytes, render: Callable[[Entry], Delivery]) -> None:
        self._table = table
        self._render = render
        self._end = cursor + b"\0"
        """First order key that the window does not cover."""
        self._orders: list[bytes] = []
        self._deliveries: list[Delivery] = []
        self._sizes: list[int] = []
        self._odd: list[bytes] = []
        """Order keys of those about which more decides than their destination."""
        self._destinations: set[str] = set()
        """Of all in the window, and perhaps of some that were."""
        self.bytes = 0
        """Of the window's rows: what its messages take in memory."""

    def __len__(self) -> int:
        return len(self._orders)

    @property
    def first(self) -> bytes | None:
        """The smallest order key beyond the cursor, if the window shows it."""
        return self._orders[0] if self._orders else None

    def extend(self, *, until: bytes, most: int = _CHUNK) -> bool:
        """Read a little further, not beyond `until`; whether there was anything left to read."""
        if self._end >= until:
            return False
        orders, rows, self._end = self._table.read(
            start=self._end, until=until, most=most, most_bytes=_CHUNK_BYTES
        )
        deliveries = unpack(rows)
        sizes = list(map(len, rows))
        self._orders += orders
        self._deliveries += deliveries
        self._sizes += sizes
        self.bytes += sum(sizes)
        self._destinations.update(map(destination_of, deliveries))
        if any_unusual(deliveries):
            both = zip(orders, deliveries, strict=True)
            self._odd += [order for order, delivery in both if is_odd(delivery)]
        return bool(orders) or self._end < until  # marks alone are no end

    def due(self, until: bytes, *, after: bytes) -> Iterator[tuple[bytes, Delivery]]:
        """What stands after `after` and before `until`, in order; read from the table where the
        window ends."""
        index = bisect_right(self._orders, after)
        while True:
            while index < len(self._orders):
                order = self._orders[index]
                if order >= until:
                    return
                yield order, self._deliveries[index]
                index += 1
            if not self.extend(until=until):
                return

    def plain_run(self, until: bytes, most: int, *, most_bytes: int, after: bytes) -> Run:
        """The first ones of the window after `after`, up to an odd one, or `until`."""
        odd = bisect_right(self._odd, after)
        window_end = bisect_left(self._orders, until)
        if odd < len(self._odd):
            until = min(self._odd[odd], until)
        start = bisect_right(self._orders, after)
        end = min(bisect_left(self._orders, until), start + most)
        sizes = self._sizes[start:end]
        total = sum(sizes)
        if total > most_bytes:
            fitting = bisect_right(list(accumulate(sizes)), most_bytes)
            end, total = start + fitting, sum(sizes[:fitting])
        return Run(
            self._deliveries[start:end],
            self._orders[end - 1] if end > start else after,
            total,
            self._destinations,
            end == window_end,
        )

    def settle(self, changes: Changes, *, cursor: bytes) -> None:
        """The table has changed, and everything up to the cursor has fired."""
        self._delete(0, bisect_right(self._orders, cursor))
        self._end = max(self._end, cursor + b"\0")
        for order in changes.removes:
            self._drop(order)
        new = [order for order in changes.puts if cursor < order < self._end]
        if len(new) > _MANY:
            self._end = min(new)  # what is from here on is read again when it is wanted
            self._delete(bisect_left(self._orders, self._end), len(self._orders))
            return
        for order in new:
            self._drop(order)
            entry = changes.puts[order]
            if entry is not None:
                self._insert(order, entry)

    def _insert(self, order: bytes, entry: Entry) -> None:
        delivery = self._render(entry)
        size = row_bytes(delivery)
        index = bisect_left(self._orders, order)
        self._orders.insert(index, order)
        self._deliveries.insert(index, delivery)
        self._sizes.insert(index, size)
        self._destinations.add(delivery[DESTINATION])
        self.bytes += size
        if is_odd(delivery):
            self._odd.insert(bisect_left(self._odd, order), order)

    def _drop(self, order: bytes) -> None:
        index = bisect_left(self._orders, order)
        if index < len(self._orders) and self._orders[index] == order:
            self._delete(index, index + 1)

    def _delete(self, start: int, end: int) -> None:
        if start >= end:
            return
        first, last = self._orders[start], self._orders[end - 1]
        del self._odd[bisect_left(self._odd, first) : bisect_right(self._odd, last)]
        self.bytes -= sum(self._sizes[start:end])
        del self._orders[start:end], self._deliveries[start:end], self._sizes[start:end]
        if not self._orders:
            self._destinations.clear()
