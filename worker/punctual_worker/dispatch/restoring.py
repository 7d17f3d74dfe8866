"""Taking a partition over: from the checkpoint and the log to a table. Pure.

The log is read from the table's position to its end. Intake's records below the checkpoint's
position and the dispatcher's own at any offset count; what was decided has its tombstone further
on; what stands at or below the cursor has fired and is left in the table to be swept.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from punctual_worker.contract import actions
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch import entries
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.entries import LogRecord
from punctual_worker.dispatch.table import Changes, Table

TOMBSTONE_DUE: Final = "x-scheduler-due"
"""Header of our tombstones: with the key it gives the order key of what they remove."""


class LostCheckpointError(Exception):
    """The log was served before, but neither broker nor log knows how far: somebody must choose."""


def tombstone_headers(order: bytes) -> actions.Headers:
    """Headers of the tombstone that removes the entry with this order key."""
    return [(TOMBSTONE_DUE, str(actions.order_due_ms(order)).encode())]


def tombstone_order(record: LogRecord) -> bytes | None:
    """Order key of what a tombstone removes; None if it is not one of ours."""
    for name, value in record.headers:
        if name == TOMBSTONE_DUE and value is not None:
            try:
                return actions.order_key(int(value), record.key)
            except ValueError:
                return None
    return None


class CheckpointSearch:
    """Looks for the checkpoint in the log itself, where the broker has none (any more)."""

    def __init__(self) -> None:
        self._recorded: Checkpoint | None = None
        self._served_before = False
        self._end = 0
        self._watermarks: dict[str, dict[int, int]] = {}

    def read(self, records: Iterable[LogRecord]) -> None:
        """Look at a batch of the log; from its start, in order."""
        for record in records:
            self._end = record.offset + 1
            if record.value is None or entries.is_own(record.key):
                self._served_before = True
                if record.key == actions.CHECKPOINT_KEY and record.value is not None:
                    self._recorded = checkpoints.decode(record.value.decode())
                continue
            parsed = actions.parse_action_key(record.key)
            if parsed is not None:
                coordinates = parsed[0]
                marks = self._watermarks.setdefault(coordinates.source_tag, {})
                marks[coordinates.partition] = max(
                    marks.get(coordinates.partition, -1), coordinates.offset
                )

    def finish(self, *, deliver_if_lost: bool) -> Checkpoint:
        """The checkpoint to go on from, once the log's end was read."""
        if self._recorded is not None:
            return self._recorded
        if not self._served_before:
            return Checkpoint()  # nobody has ever dispatched this log
        if not deliver_if_lost:
            raise LostCheckpointError(
                "this partition was dispatched before, but its checkpoint is gone from the"
                " consumer group and from the log; deliver what the log still holds, some of it"
                " perhaps twice, with on-lost-checkpoint=deliver"
            )
        return Checkpoint(position=self._end, watermarks=self._watermarks)


class TakeOver:
    """From a committed checkpoint, or none, to a table that stands where the last owner stood.

    The caller reads the log from `read_from` to its end, `feed`s what it reads, says `end_of_log`,
    and does so again until `checkpoint` is there: a log without committed checkpoint is read twice,
    once to find the recorded one and once to fill the table.
    """

    def __init__(
        self, table: Table, committed: Checkpoint | None, *, deliver_if_lost: bool = False
    ) -> None:
        self._table = table
        self._deliver_if_lost = deliver_if_lost
        self._search = CheckpointSearch() if committed is None else None
        self._restoration = None if committed is None else _restoration(table, committed)
        self._found = committed
        self.checkpoint: Checkpoint | None = None
        """Set once the table is complete."""

    @property
    def read_from(self) -> int:
        """Offset at which the next reading begins."""
        return 0 if self._restoration is None else self._table.position

    def feed(self, records: Sequence[LogRecord]) -> None:
        """Take a batch of the log in."""
        if self._restoration is not None:
            self._restoration.fold(records)
        elif self._search is not None:
            self._search.read(records)

    def end_of_log(self) -> None:
        """The end was reached; `LostCheckpointError` if nobody may guess how to go on."""
        if self._restoration is not None:
            self.checkpoint = self._found
        elif self._search is not None:
            self._found = self._search.finish(deliver_if_lost=self._deliver_if_lost)
            self._restoration = _restoration(self._table, self._found)


def _restoration(table: Table, checkpoint: Checkpoint) -> "Restoration":
    if table.position > checkpoint.position:
        table.clear()  # ahead of what is known to be committed: not a prefix of this log
    return Restoration(table, checkpoint)


class Restoration:
    """Folds the log, from the table's position on, into the table."""

    def __init__(self, table: Table, checkpoint: Checkpoint) -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._changes = Changes()

    def fold(self, records: Iterable[LogRecord]) -> None:
        """Take a batch of the log in."""
        upto = self._table.position
        for record in records:
            upto = record.offset + 1
            if record.value is not None:
                self._put(record)
            else:
                order = tombstone_order(record)
                if order is not None:
                    self._remove(order)
        # The table may not claim what the checkpoint does not cover: intake's records from its
        # position on are not in it, and a later owner that trusted the claim would skip them.
        position = min(upto, self._checkpoint.position)
        self._table.write(self._changes, position=max(position, self._table.position))
        self._changes = Changes()

    def _put(self, record: LogRecord) -> None:
        if actions.parse_action_key(record.key) is None:
            return
        if not entries.is_own(record.key) and record.offset >= self._checkpoint.position:
            return  # not taken in yet: comes again, live
        try:
            entry = entries.read_entry(record)
        except actions.InvalidPlanError:
            return
        if entry.plan.verb is not actions.Verb.CANCEL:
            self._changes.put(entry)

    def _remove(self, order: bytes) -> None:
        entry = self._changes.puts.get(order) or self._table.get(order)
        self._changes.remove(order, entry.plan.request_id if entry is not None else "")
