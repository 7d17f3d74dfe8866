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
    """Looks for the checkpoint in the log itself, and for signs that there must be one."""

    def __init__(self) -> None:
        self.newest: Checkpoint | None = None
        self._served_before = False
        self._end = 0
        self._watermarks: dict[str, dict[int, int]] = {}

    def read(self, records: Iterable[LogRecord]) -> None:
        """Look at a batch of the log, in order."""
        for record in records:
            self._end = record.offset + 1
            if record.value is None or entries.is_own(record.key):
                self._served_before = True
                self.newest = _newer(self.newest, record)
                continue
            parsed = actions.parse_action_key(record.key)
            if parsed is not None:
                coordinates = parsed[0]
                marks = self._watermarks.setdefault(coordinates.source_tag, {})
                marks[coordinates.partition] = max(
                    marks.get(coordinates.partition, -1), coordinates.offset
                )

    def guess(self, *, deliver_if_lost: bool) -> Checkpoint:
        """Where to go on if there is none, once the whole log was read."""
        if not self._served_before:
            return Checkpoint()  # nobody has ever dispatched this log
        if not deliver_if_lost:
            raise LostCheckpointError(
                "this partition was dispatched before, but its checkpoint is gone from the"
                " consumer group and from the log; deliver what the log still holds, some of it"
                " perhaps twice, with on-lost-checkpoint=deliver"
            )
        return Checkpoint(position=self._end, watermarks=self._watermarks)


def _newer(known: Checkpoint | None, record: LogRecord) -> Checkpoint | None:
    """The checkpoint that a record holds, or the known one if that is further on.

    What is later in the log is further on, except where a former owner, not fenced because it works
    at least once, has written after its successor.
    """
    if record.key != actions.CHECKPOINT_KEY or record.value is None:
        return known
    told = checkpoints.decode(record.value.decode(errors="replace"))
    return told if known is None or known.is_behind(told) else known


class TakeOver:
    """From what the broker says is committed, if anything, to a table that stands where the last
    owner stood.

    The log has the last word: every turn writes its checkpoint there too, in its transaction, and
    a broker's answer may be missing (forgotten), or older than what was committed (it crashed).

    The caller reads the log from `read_from` to its end, `feed`s what it reads, says `end_of_log`,
    and does so again until `checkpoint` is there.
    """

    def __init__(
        self, table: Table, committed: Checkpoint | None, *, deliver_if_lost: bool = False
    ) -> None:
        self._table = table
        self._committed = committed
        self._deliver_if_lost = deliver_if_lost
        self._search: CheckpointSearch | None = None
        self._restoration: Restoration | None = None
        self._unreadable: checkpoints.InvalidCheckpointError | None = None
        if committed is not None and table.position <= committed.position:
            self._restoration = Restoration(table, committed)
        else:
            self._search = CheckpointSearch()
        self.checkpoint: Checkpoint | None = None
        """Set once the table is complete."""

    @property
    def read_from(self) -> int:
        """Offset at which the next reading begins.

        No table is further on than the last checkpoint in the log, which was written after what
        it covers: so that is found from the table's position on. Without any word of the broker
        the whole log is looked at, which also tells whether anybody has served it.
        """
        return 0 if self._committed is None and self._search else self._table.position

    def feed(self, records: Sequence[LogRecord]) -> None:
        """Take a batch of the log in."""
        try:
            if self._restoration is not None:
                self._restoration.fold(records)
            elif self._search is not None:
                self._search.read(records)
        except checkpoints.InvalidCheckpointError as error:
            self._unreadable = error

    def end_of_log(self) -> None:
        """The end was reached; `LostCheckpointError` if nobody may guess how to go on,
        `InvalidCheckpointError` if the log has one that is not ours to understand."""
        if self._unreadable is not None:
            raise self._unreadable
        if self._restoration is not None:
            used, newest = self._restoration.checkpoint, self._restoration.newest
            if newest is None or not used.is_behind(newest):
                self.checkpoint = used
            else:  # the table lacks what intake wrote between the two: read once more, from there
                self._restoration = Restoration(self._table, newest)
        elif self._search is not None:
            found = self._search.newest
            if self._committed is None and found is None:
                found = self._search.guess(deliver_if_lost=self._deliver_if_lost)
            elif found is None or (self._committed and found.is_behind(self._committed)):
                found = self._committed
            assert found is not None, "each case above leaves one"  # noqa: S101
            if self._table.position > found.position:
                self._table.clear()  # ahead of what was committed: not a prefix of this log
            self._search, self._restoration = None, Restoration(self._table, found)


class Restoration:
    """Folds the log, from the table's position on, into the table."""

    def __init__(self, table: Table, checkpoint: Checkpoint) -> None:
        self._table = table
        self.checkpoint = checkpoint
        self.newest: Checkpoint | None = None
        """The last checkpoint that was met in the log."""
        self._from_nothing = table.position == 0 and table.first_after(b"") is None
        """Then only what intake has sent again can be in the table already. To look for each record
        would take most of the time: with millions of rows no filter stays in memory."""
        self._watermarks: dict[bytes, int] = {}
        """By what all action keys of a request partition begin with."""
        self._changes = self._new_changes()

    def _new_changes(self) -> Changes:
        return Changes(perhaps_there=not self._from_nothing)

    def fold(self, records: Iterable[LogRecord]) -> None:
        """Take a batch of the log in."""
        upto = self._table.position
        for record in records:
            upto = record.offset + 1
            if record.key == actions.CHECKPOINT_KEY:
                self.newest = _newer(self.newest, record)
            elif record.value is not None:
                self._put(record)
            else:
                order = tombstone_order(record)
                if order is not None:
                    self._remove(order)
        # The table may not claim what the checkpoint does not cover: intake's records from its
        # position on are not in it, and a later owner that trusted the claim would skip them.
        position = min(upto, self.checkpoint.position)
        self._table.write(self._changes, position=max(position, self._table.position))
        self._changes = self._new_changes()

    def _put(self, record: LogRecord) -> None:
        own = entries.is_own(record.key)
        if not own and record.offset >= self.checkpoint.position:
            return  # not taken in yet: comes again, live
        request_partition, _, request_offset = record.key.rpartition(b"/")
        mark = -1 if own else self._watermarks.get(request_partition)
        if (own or mark is None) and actions.parse_action_key(record.key) is None:
            return
        try:
            entry = entries.read_entry(record)
            offset = -1 if own else int(request_offset)
        except ValueError:  # an invalid plan is one
            return
        if entry.plan.verb.delivers:
            order = entry.order
            self._changes.put(order, entry)
            if own:
                return
            if mark is not None and offset <= mark:
                self._changes.again.add(order)
            else:
                self._watermarks[request_partition] = offset

    def _remove(self, order: bytes) -> None:
        entry = self._changes.puts.get(order) or self._table.get(order)
        self._changes.remove(order, entry.plan.request_id if entry is not None else "")
