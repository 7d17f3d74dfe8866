"""What is due next, read and made ready before its time. Pure.

When ten thousand messages fall due at one instant, reading them from disk and making their headers
would take longer than sending them. So the next ones of a partition are kept in memory in the form
in which they are delivered: a window on the table that begins after the cursor.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Final

from punctual_worker.dispatch.entries import Delivery, Entry
from punctual_worker.dispatch.table import Changes, Table

_CHUNK: Final = 500
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_MANY: Final = 100
"""So many new rows inside the window are read from the table again rather than sorted in."""


class ReadAhead:
    """All rows of the table from the cursor to the window's end, as deliveries."""

    def __init__(self, table: Table, *, cursor: bytes, render: Callable[[Entry], Delivery]) -> None:
        self._table = table
        self._render = render
        self._end = cursor + b"\0"
        """First order key that the window does not cover."""
        self._orders: list[bytes] = []
        self._deliveries: dict[bytes, Delivery] = {}
        self.bytes = 0
        """Of the values in the window."""

    def __len__(self) -> int:
        return len(self._orders)

    def extend(self, *, until: bytes, most: int = _CHUNK) -> bool:
        """Read a little further, not beyond `until`; whether that found anything."""
        if self._end >= until:
            return False
        found = read = 0
        for order, entry in self._table.scan(start=self._end, until=until):
            self._orders.append(order)
            self._keep(order, entry)
            self._end = order + b"\0"
            found += 1
            read += _size(entry)
            if found >= most or read >= _CHUNK_BYTES:
                return True
        self._end = until
        return found > 0

    def due(self, until: bytes) -> Iterator[tuple[bytes, Delivery]]:
        """What stands before `until`, in order; read from the table where the window ends."""
        index = 0
        while True:
            while index < len(self._orders):
                order = self._orders[index]
                if order >= until:
                    return
                yield order, self._deliveries[order]
                index += 1
            if not self.extend(until=until):
                return

    def settle(self, changes: Changes, *, cursor: bytes) -> None:
        """The table has changed, and everything up to the cursor has fired."""
        passed = bisect_right(self._orders, cursor)
        for order in self._orders[:passed]:
            self._let_go(order)
        del self._orders[:passed]
        self._end = max(self._end, cursor + b"\0")
        for order in changes.removes:
            self._drop(order)
        new = [order for order in changes.puts if cursor < order < self._end]
        if len(new) > _MANY:
            self._forget_from(min(new))
            return
        for order in new:
            entry = changes.puts[order]
            if entry is None:
                self._drop(order)
                continue
            if order not in self._deliveries:
                insort(self._orders, order)
            else:
                self._let_go(order)
            self._keep(order, entry)

    def _keep(self, order: bytes, entry: Entry) -> None:
        self._deliveries[order] = self._render(entry)
        self.bytes += _size(entry)

    def _let_go(self, order: bytes) -> None:
        self.bytes -= _size(self._deliveries.pop(order).entry)

    def _drop(self, order: bytes) -> None:
        if order in self._deliveries:
            self._let_go(order)
            del self._orders[bisect_left(self._orders, order)]

    def _forget_from(self, order: bytes) -> None:
        """Cover less: what is from here on is read again when it is wanted."""
        first = bisect_left(self._orders, order)
        for forgotten in self._orders[first:]:
            self._let_go(forgotten)
        del self._orders[first:]
        self._end = order


def _size(entry: Entry) -> int:
    return len(entry.value) if entry.value else 0
