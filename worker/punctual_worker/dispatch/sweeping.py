"""Tombstones for what has fired: the log forgets it, and so does the store.

Nothing waits for that. About once a second everything that has fired by then is gone through, in
slices of a millisecond, in moments when nothing is due or the loop has to wait for Kafka anyway. A
slice is forgotten by the store once its tombstones are known to be written.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from punctual_worker.dispatch.owned import Owned

_ROUND_EVERY_MS: Final = 1_000
_SLICE_ROWS: Final = 250


class Sweeper(Protocol):
    """Writes tombstones, without waiting."""

    def bury(self, partition: int, orders: Sequence[bytes]) -> None:
        """Hand the tombstones of these over."""

    def written(self) -> bool | None:
        """Whether all that was handed over is written; None as long as that is not known."""


class _Slice(NamedTuple):
    """Rows whose tombstones are under way."""

    number: int
    owned: Owned
    rows: Sequence[tuple[bytes, str]]


class Sweeping:
    """Goes through the partitions in service, as long as they are."""

    def __init__(self, sweeper: Sweeper, owned: Mapping[int, Owned]) -> None:
        self._sweeper = sweeper
        self._owned = owned
        self._left: dict[int, int] = {}
        """Rows of the present round that are still to be swept, by partition."""
        self._under_way: list[_Slice] = []
        self._round_ms = 0
        self.stepped_ms = 0
        """When something was last swept, or there was nothing to sweep."""

    @property
    def waits(self) -> bool:
        """Whether Kafka has not yet said that it has the tombstones."""
        return bool(self._under_way)

    @property
    def behind(self) -> bool:
        """Whether a round is not through."""
        return bool(self._left)

    def step(self, now: int) -> None:
        """Do a little, if there is something to do."""
        if self._under_way and not self._settle():
            return
        self.stepped_ms = now
        if not self._left and now - self._round_ms >= _ROUND_EVERY_MS:
            self._round_ms = now
            self._left = {n: owned.unswept for n, owned in self._owned.items() if owned.unswept}
        if self._left:
            self._send()

    def _send(self) -> None:
        room = _SLICE_ROWS
        while self._left and room > 0:
            number, wanted = self._left.popitem()
            owned = self._owned.get(number)
            if owned is None:
                continue
            asked = min(wanted, room)
            rows = owned.partition.sweepable(asked)
            if not rows:
                owned.unswept = 0
                continue
            orders = [order for order, _ in rows]
            self._sweeper.bury(number, orders)
            owned.store.swept_up_to(orders[-1])
            self._under_way.append(_Slice(number, owned, rows))
            room -= len(rows)
            if len(rows) == asked < wanted:
                self._left[number] = wanted - asked

    def _settle(self) -> bool:
        """Whether it is known what became of the slice."""
        written = self._sweeper.written()
        if written is None:
            return False
        for number, owned, rows in self._under_way:
            if self._owned.get(number) is not owned:
                continue  # given up meanwhile; its store is closed
            if written:
                owned.partition.swept(rows)
                owned.unswept = max(owned.unswept - len(rows), 0)
            else:
                owned.store.sweep_again_from(rows[0][0])
        self._under_way.clear()
        if not written:
            self._left.clear()
        return True
