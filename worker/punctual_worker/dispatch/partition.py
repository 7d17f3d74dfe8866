"""One owned partition: its table, its checkpoint, and the order in which they may change. Pure.

The order is what exactly-once rests on: plan, write everything in one transaction, commit, and only
then `settle`. Sweeping writes tombstones of what has fired, outside of any transaction, and forgets
the rows once these are written.
"""

from collections.abc import Sequence

from punctual_worker.contract import actions
from punctual_worker.dispatch.ahead import ReadAhead
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.table import Changes, Table
from punctual_worker.dispatch.timetable import PartitionTurn
from punctual_worker.dispatch.verdicts import Judge


class Partition:
    """What the owner of an actions partition knows."""

    def __init__(
        self, number: int, *, table: Table, checkpoint: Checkpoint, policy: Policy
    ) -> None:
        self.number = number
        self.table = table
        self.checkpoint = checkpoint
        self.ahead = ReadAhead(table, cursor=checkpoint.cursor, render=policy.render)
        self._policy = policy

    def must_wait(self, now_ms: int) -> bool:
        """Whether this clock is behind the one that fired last: then it is too early for all."""
        return now_ms < self.checkpoint.cursor_ms

    def turn(self, *, judge: Judge, now_ms: int) -> PartitionTurn:
        """Begin a turn; nothing changes before `settle`."""
        return PartitionTurn(
            self.table,
            self.checkpoint,
            ahead=self.ahead,
            policy=self._policy,
            judge=judge,
            now_ms=now_ms,
        )

    def settle(self, outcome: Outcome) -> None:
        """The transaction is committed: make the table what the log now says."""
        self.table.write(outcome.changes, position=outcome.checkpoint.position)
        self.ahead.settle(outcome.changes, cursor=outcome.checkpoint.cursor)
        self.checkpoint = outcome.checkpoint

    def next_due_ms(self) -> int | None:
        """When the next pending entry is due."""
        order = self.ahead.first or self.table.first_after(self.checkpoint.cursor)
        due_ms = None if order is None else actions.order_due_ms(order)
        return None if due_ms == actions.NEVER_MS else due_ms

    def sweepable(self, limit: int) -> list[tuple[bytes, str]]:
        """Fired rows whose records have no tombstone yet: order key and request id."""
        return self.table.fired(until=self.checkpoint.cursor, limit=limit)

    def swept(self, rows: Sequence[tuple[bytes, str]]) -> None:
        """Their tombstones are in the log: forget them."""
        self.table.write(Changes(removes=dict(rows)), position=self.table.position)
