"""Deliberate mistakes, each of which the explorer must catch: proof that it can find bugs.

A mutant is the real code with one method replaced, or the right steps in a wrong order. All of
them are judged by what users would see (lost, twice, early, undead), not by the state of tables.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from punctual_worker.contract import actions
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch import entries
from punctual_worker.dispatch.ahead import ReadAhead, Run
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.deliveries import Delivery
from punctual_worker.dispatch.entries import Entry, LogRecord
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.restoring import Restoration, TakeOver
from punctual_worker.dispatch.table import Changes, Table
from punctual_worker.dispatch.timetable import PartitionTurn
from punctual_worker.dispatch.verdicts import Budget, Judge
from simulation.mutant import AGEING, MOVING, Mutant, RearmedOtherwise, with_turn
from simulation.pausing_mutants import PAUSING_MUTANTS
from simulation.protocol import Protocol
from simulation.recurring_mutants import RECURRING_MUTANTS

# mistakes in a turn


class _PutsWhatTheCursorHasPassed(PartitionTurn):
    def _arm(self, entry: Entry) -> None:
        self._put(entry.order, entry)


class _PositionBehindCursor(PartitionTurn):
    """Fires what the position does not cover: the last record of each batch."""

    def finish(self) -> Outcome:
        outcome = super().finish()
        if outcome.checkpoint.position > self._before.position:
            behind = replace(outcome.checkpoint, position=outcome.checkpoint.position - 1)
            outcome.checkpoint = behind
        return outcome


class _NoReplayCheck(PartitionTurn):
    def _seen(self, coordinates: actions.Coordinates) -> bool:
        return False


class _SharedWatermarks(PartitionTurn):
    """Changes the checkpoint it was given: after an abort the retry takes all for replays."""

    def __init__(self, table: Table, checkpoint: Checkpoint, **given: Any) -> None:
        super().__init__(table, checkpoint, **given)
        self._watermarks = checkpoint.watermarks  # type: ignore[assignment]


class _RearmedNotInTable(PartitionTurn):
    def _rearm(self, entry: Entry, **when: Any) -> None:
        super()._rearm(entry, **when)
        self._out.changes.puts.pop(self._out.rearmed[-1].order)


class _RearmedBehindCursor(RearmedOtherwise):
    def _spoil(self, again: Entry, entry: Entry) -> Entry:
        return again._replace(plan=again.plan._replace(due_ms=entry.plan.due_ms))


class _RearmedUnderTheSameKey(RearmedOtherwise):
    def _spoil(self, again: Entry, entry: Entry) -> Entry:
        return again._replace(key=entry.key)


class _BuriesTheRequestNotItsRearming(PartitionTurn):
    def _remove(self, entry: Entry) -> None:
        super()._remove(entry)
        self._out.tombstones[-1] = entry._replace(key=entries.base_key(entry.key))


class _ReplayNotBuried(PartitionTurn):
    def _take_replay(self, entry: Entry, written_ms: int) -> None:
        return


class _EveryReplayBuried(PartitionTurn):
    def _take_replay(self, entry: Entry, written_ms: int) -> None:
        self._out.tombstones.append(entry)


class _OldReplayBehindCursorBuried(PartitionTurn):
    """Takes it for fired, though after an outage it may never have been read."""

    def _take_replay(self, entry: Entry, written_ms: int) -> None:
        if entry.order <= self._before.cursor:
            self._out.tombstones.append(entry)
        else:
            super()._take_replay(entry, written_ms)


class _CursorAtTheClock(PartitionTurn):
    """Moves the cursor to now, also past what the budget has left for the next turn."""

    def collect(self, budget: Budget) -> None:
        super().collect(budget)
        self._cursor = max(self._cursor, actions.order_key(self._now_ms + 1, b""))


class _FindsFiredRows(PartitionTurn):
    """Takes a fired row that waits to be swept for a pending one."""

    def _find(self, request_id: str) -> Entry | None:
        if request_id in self._pending_ids:
            return self._pending_ids[request_id]
        for order in self._table.find(request_id):
            return self._table.get(order)
        return None


class _SlowClockPartition(Partition):
    """Fires by whatever clock it has, also one that is behind the cursor."""

    def must_wait(self, now_ms: int) -> bool:
        return False

    def turn(self, *, judge: Judge, now_ms: int) -> PartitionTurn:
        turn = super().turn(judge=judge, now_ms=max(now_ms, self.checkpoint.cursor_ms))
        turn._now_ms = now_ms
        return turn


# mistakes in reading ahead


def _with_ahead(ahead_class: type[ReadAhead]) -> Protocol:
    class MutantPartition(Partition):
        def __init__(self, number: int, **given: Any) -> None:
            super().__init__(number, **given)
            self.ahead = ahead_class(
                self.table, cursor=self.checkpoint.cursor, render=self._policy.render
            )

    return Protocol(partition=MutantPartition)


class _AheadKeepsWhatIsGone(ReadAhead):
    def settle(self, changes: Changes, *, cursor: bytes) -> None:
        super().settle(Changes(puts=changes.puts), cursor=cursor)


class _AheadMissesWhatComes(ReadAhead):
    def settle(self, changes: Changes, *, cursor: bytes) -> None:
        super().settle(Changes(removes=changes.removes), cursor=cursor)


class _AheadSkipsWhatIsLeft(ReadAhead):
    """Begins behind what was read, not behind what has fired."""

    def due(self, until: bytes, *, after: bytes) -> Iterator[tuple[bytes, Delivery]]:
        found = list(super().due(until, after=after))
        self._delete(0, len(self))
        return iter(found)


class _AheadTakesAllForPlain(ReadAhead):
    """Arms no next fire, and delivers what has expired."""

    def plain_run(self, until: bytes, most: int, *, most_bytes: int, after: bytes) -> Run:
        self._odd.clear()
        return super().plain_run(until, most, most_bytes=most_bytes, after=after)


class _AheadBeginsAgain(ReadAhead):
    """Gives what it gave before in the same turn."""

    def plain_run(self, until: bytes, most: int, *, most_bytes: int, after: bytes) -> Run:
        return super().plain_run(until, most, most_bytes=most_bytes, after=b"")


class _AheadForgetsWhatWasAmongTheFired(ReadAhead):
    """Moves over one more than it gives."""

    def plain_run(self, until: bytes, most: int, *, most_bytes: int, after: bytes) -> Run:
        run = super().plain_run(until, most, most_bytes=most_bytes, after=after)
        return run._replace(deliveries=run.deliveries[:-1]) if len(run.deliveries) > 1 else run


# mistakes in the checkpoint


def _without_watermarks(checkpoint: Checkpoint) -> str:
    return checkpoints.encode(replace(checkpoint, watermarks={}))


def _without_cursor(text: str) -> Checkpoint:
    return replace(checkpoints.decode(text), cursor=checkpoints.BEFORE_EVERYTHING)


# mistakes in taking over


def _with_restoration(restoration_class: type[Restoration]) -> Protocol:
    class MutantTakeOver(TakeOver):
        def feed(self, records: list[LogRecord]) -> None:
            if type(self._restoration) is Restoration:
                self._restoration = restoration_class(self._table, self._restoration.checkpoint)
            super().feed(records)

    return Protocol(take_over=MutantTakeOver)


class _BelievesTheBroker(TakeOver):
    def end_of_log(self) -> None:
        if self._restoration is not None:
            self._restoration.newest = None
        super().end_of_log()


class _ClaimsWhatItHasRead(Restoration):
    def fold(self, records: Iterable[LogRecord]) -> None:
        batch = list(records)
        super().fold(batch)
        if batch:
            self._table.write(Changes(), position=batch[-1].offset + 1)


class _IgnoresOwnBeyondPosition(Restoration):
    def _put(self, record: LogRecord) -> None:
        if record.offset < self.checkpoint.position:
            super()._put(record)


class _TakesInBeyondPosition(Restoration):
    def _put(self, record: LogRecord) -> None:
        position, self.checkpoint = self.checkpoint, replace(self.checkpoint, position=1 << 60)
        super()._put(record)
        self.checkpoint = position


class _IgnoresTombstonesBeyondPosition(Restoration):
    def fold(self, records: Iterable[LogRecord]) -> None:
        position = self.checkpoint.position
        super().fold(one for one in records if one.value is not None or one.offset < position)


MUTANTS: Final[dict[str, Mutant]] = {
    "tombstone-before-commit": Mutant(
        "fired work gets its tombstone before the commit",
        Protocol(tombstones_fired_before_commit=True),
    ),
    "settle-before-commit": Mutant(
        "the table changes before the commit", Protocol(settles_before_commit=True)
    ),
    "settle-after-failure": Mutant(
        "a failed commit is taken for a good one", Protocol(settles_after_failed_commit=True)
    ),
    "decision-tombstones-outside": Mutant(
        "decisions are buried outside of the transaction",
        Protocol(tombstones_in_transaction=False),
    ),
    "rearming-outside": Mutant(
        "re-armed work is written outside of the transaction",
        Protocol(rearms_in_transaction=False),
    ),
    "no-decision-tombstones": Mutant(
        "what was decided gets no tombstone", Protocol(tombstones_decisions=False)
    ),
    "cursor-ahead-put": Mutant(
        "an entry that the cursor has passed is put into the table instead of fired",
        with_turn(_PutsWhatTheCursorHasPassed),
    ),
    "cursor-ahead-of-position": Mutant(
        "fires what the position does not cover", with_turn(_PositionBehindCursor)
    ),
    "cursor-at-the-clock": Mutant(
        "the cursor moves past what the budget left over", with_turn(_CursorAtTheClock)
    ),
    "no-replay-check": Mutant("W is ignored", with_turn(_NoReplayCheck)),
    "watermarks-not-kept": Mutant(
        "W is not in the checkpoint", Protocol(encode=_without_watermarks)
    ),
    "cursor-not-kept": Mutant("X is not in the checkpoint", Protocol(decode=_without_cursor)),
    "watermarks-shared": Mutant(
        "an aborted turn leaves its W behind", with_turn(_SharedWatermarks)
    ),
    "rearmed-not-in-table": Mutant(
        "re-armed work is not known to the table at once", with_turn(_RearmedNotInTable)
    ),
    "rearmed-behind-cursor": Mutant(
        "re-armed work is not due after the cursor", with_turn(_RearmedBehindCursor)
    ),
    "rearmed-under-same-key": Mutant(
        "re-armed work shares its key with intake's record", with_turn(_RearmedUnderTheSameKey)
    ),
    "rearmed-not-buried": Mutant(
        "a cancelled re-arming leaves its own record alive",
        with_turn(_BuriesTheRequestNotItsRearming),
    ),
    "replay-not-buried": Mutant(
        "a replay of a decided key gets no tombstone", with_turn(_ReplayNotBuried)
    ),
    "pending-replay-buried": Mutant(
        "a replay of a pending key gets a tombstone too", with_turn(_EveryReplayBuried)
    ),
    "old-replay-behind-cursor-buried": Mutant(
        "after a long outage a replay that the cursor has passed is dropped",
        with_turn(_OldReplayBehindCursorBuried),
    ),
    "fired-rows-still-pending": Mutant(
        "a fired row that is not swept yet counts as pending", with_turn(_FindsFiredRows)
    ),
    "slow-clock": Mutant(
        "fires by a clock that is behind the cursor",
        Protocol(partition=_SlowClockPartition),
        {"clock_jump": 8, "long_time": 0, **MOVING},
    ),
    "store-claims-beyond-checkpoint": Mutant(
        "a restored table claims what was read, not what the checkpoint covers",
        _with_restoration(_ClaimsWhatItHasRead),
        MOVING,
    ),
    "own-records-ignored": Mutant(
        "the dispatcher's own records beyond L are ignored at take-over",
        _with_restoration(_IgnoresOwnBeyondPosition),
    ),
    "takes-in-beyond-position": Mutant(
        "intake's records beyond L are put into the table at take-over",
        _with_restoration(_TakesInBeyondPosition),
    ),
    "tombstones-ignored": Mutant(
        "tombstones beyond L are ignored at take-over",
        _with_restoration(_IgnoresTombstonesBeyondPosition),
    ),
    "stops-at-stable-end": Mutant(
        "take-over stops at the read-committed end, not the high watermark",
        Protocol(reads_to_high_watermark=False),
        {**MOVING, "marker": 0.3},
    ),
    "reads-uncommitted": Mutant(
        "take-over reads what was never committed", Protocol(reads_uncommitted=True)
    ),
    "unstable-fetch": Mutant(
        "the committed offset is read past pending transactions", Protocol(fetch_is_stable=False)
    ),
    "no-generation-fencing": Mutant(
        "offsets are sent without the group's generation", Protocol(generations_checked=False)
    ),
    "generation-of-the-moment": Mutant(
        "offsets are sent with a generation newer than the turn",
        Protocol(generation_asked_when_sent=True),
    ),
    "keeps-lost-partitions": Mutant(
        "after being expelled, goes on with the table it had",
        Protocol(keeps_partitions_it_lost=True),
        {**MOVING, "expel": 4},
    ),
    "ahead-keeps-what-is-gone": Mutant(
        "what was made ready is delivered though it was cancelled or replaced",
        _with_ahead(_AheadKeepsWhatIsGone),
    ),
    "ahead-misses-what-comes": Mutant(
        "what comes in between things that were made ready is passed over",
        _with_ahead(_AheadMissesWhatComes),
    ),
    "ahead-skips-what-is-left": Mutant(
        "what was made ready and did not fit into the turn is forgotten",
        _with_ahead(_AheadSkipsWhatIsLeft),
    ),
    "ahead-takes-all-for-plain": Mutant(
        "what recurs or expires is fired together with what does not",
        _with_ahead(_AheadTakesAllForPlain),
    ),
    "ahead-begins-again": Mutant(
        "what was fired together is fired once more when there is room in the turn",
        _with_ahead(_AheadBeginsAgain),
    ),
    "ahead-gives-one-too-few": Mutant(
        "of those fired together the last is not delivered",
        _with_ahead(_AheadForgetsWhatWasAmongTheFired),
    ),
    "keyed-by-id": Mutant("action records have the id as key", Protocol(keyed_by_id=True)),
    "trusts-old-tables": Mutant(
        "a local store is trusted however old it is",
        Protocol(trusts_old_tables=True),
        AGEING,
    ),
    "checkpoint-not-in-log": Mutant(
        "not every turn writes its checkpoint into the log", Protocol(records_every_turn=False)
    ),
    "broker-believed": Mutant(
        "the log's checkpoint is ignored where the broker tells one",
        Protocol(take_over=_BelievesTheBroker),
    ),
    **PAUSING_MUTANTS,
    **RECURRING_MUTANTS,
}
