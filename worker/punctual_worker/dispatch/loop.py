"""The dispatcher's loop: wait for a record or a due time, take a turn, tidy up, again.

One life of the loop ends with a clean stop, or with `BrokenError` when it is not known what Kafka
has; `main` then begins another one, which takes its partitions over from what is committed.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from punctual_worker.contract import actions
from punctual_worker.dispatch.deliveries import destination_of, wanted_ms_of
from punctual_worker.dispatch.destinations import Destinations
from punctual_worker.dispatch.garbage import Garbage
from punctual_worker.dispatch.group import Group
from punctual_worker.dispatch.metrics import DispatchMetrics
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.owned import Owned
from punctual_worker.dispatch.producing import DestinationError, InterruptedWriteError, Work
from punctual_worker.dispatch.store import now_ms
from punctual_worker.dispatch.sweeping import Sweeping
from punctual_worker.dispatch.takeover import Restored, Restorer
from punctual_worker.dispatch.timetable import PartitionTurn
from punctual_worker.dispatch.verdicts import Budget
from punctual_worker.dispatch.writing import BrokenError, TombstoneWriter, Writer

_LONGEST_WAIT_SECONDS: Final = 0.5
_RESTORING_WAIT_SECONDS: Final = 0.01
_GATHER_MS: Final = 8
"""What comes in so shortly before something is due shares its transaction: two would be later."""
_TURN_MAX_BYTES: Final = 32 * 1024 * 1024
_FIRST_BATCH: Final = 500
"""Most deliveries in the first transaction of a burst: nobody sees any of them before its end."""
_MOST_DELIVERED: Final = 5
"""So many times as many messages are delivered in a transaction as actions are read at most."""
_QUIET_MS: Final = 500
_GARBAGE_KEPT: Final = 60_000
"""Delivered messages that are not let go of before a burst is over: on few cores the broker needs
the time."""
_SWEEP_NEGLECT_MS: Final = 5_000
"""A slice is swept so often even when more and more is due."""
_TOMBSTONES_WAIT_SECONDS: Final = 0.005
_TIDY_EVERY_MS: Final = 1_000
_POSITION_EVERY_MS: Final = 10_000
"""How long a position that moved over our own records alone may stay uncommitted."""
_CONFIRM_EVERY_MS: Final = 3_600_000
"""How often an idle owner commits all the same: that shows it still is one, so that its store stays
trusted and the broker remembers the group."""
_RETRY_SECONDS: Final = (0.05, 2.0)
_OVERDUE_MS: Final = 1_000
_OVERDUE_COUNTED: Final = 10_000
_AHEAD_MS: Final = 10_000
"""What is due so soon is made ready before its time, ..."""
_AHEAD_MOST: Final = 100_000
_AHEAD_MOST_BYTES: Final = 64 * 1024 * 1024
"""... up to so many messages, and bytes of them, in all."""
_AHEAD_SLICES: Final = (250, 1_000)
"""Made ready at a time: a millisecond at most; within a burst, where all wait for it, more."""
_MARGIN_MS: Final = 5
"""Neither making ready nor sweeping when something falls due so soon."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What one life of the loop works with."""

    group: Group
    writer: Writer
    sweeper: TombstoneWriter
    restorer: Restorer
    destinations: Destinations
    metrics: DispatchMetrics
    group_token: Callable[[], Any]
    """What the writer needs to be fenced by the group: its metadata, or its consumer."""
    turn_max_records: int


class Loop:
    """One life."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._owned: dict[int, Owned] = {}
        self._unservable: dict[int, str] = {}
        self._readiness = (False, "starting")
        self._more = False
        self._making_ready = False
        self._retry_at = 0.0
        self._retry_pause = _RETRY_SECONDS[0]
        self._turns = 0
        self._sweeping = Sweeping(parts.sweeper, self._owned)
        self._garbage = Garbage()
        self._tidied_ms = 0

    @property
    def readiness(self) -> tuple[bool, str]:
        """Whether every partition of ours is served; as of the last step, for other threads."""
        return self._readiness

    def _judge_readiness(self) -> tuple[bool, str]:
        parts = self._parts
        if not parts.group.joined:
            return False, "waiting for the consumer group"
        if self._unservable:
            return False, "; ".join(f"partition {n}: {why}" for n, why in self._unservable.items())
        if parts.restorer.busy:
            return False, "taking partitions over"
        if any(owned.waiting for owned in self._owned.values()):
            return False, "this machine's clock is behind that of the last owner"
        if self._retry_at:
            return False, "Kafka refuses transactions"
        return True, f"serving {len(self._owned)} partitions"

    # the loop

    def step(self) -> None:
        """Wait for something to do, and do it."""
        batches = self._parts.group.poll(self._patience(), self._parts.turn_max_records)
        self._follow_assignment()
        for number, records in batches.items():
            if owned := self._owned.get(number):
                owned.held += records
        if self._work_is_due():
            self._turn()
        now = now_ms()
        idle = not self._busy_within(_MARGIN_MS, now)
        self._making_ready = idle and (self._make_ready() or self._garbage.step(most=0))
        neglected = now - self._sweeping.stepped_ms > _SWEEP_NEGLECT_MS
        if neglected or (idle and not self._making_ready):
            self._sweeping.step(now)
        self._tidy(now)
        self._readiness = self._judge_readiness()

    def close(self) -> None:
        """Let go of everything."""
        for number in list(self._owned):
            self._give_up(number)
        self._parts.group.close()
        self._parts.restorer.close()
        self._parts.writer.close()
        self._parts.sweeper.close()

    def _patience(self) -> float:
        """Seconds to wait for records: until something is due."""
        if self._retry_at:
            return max(0.0, min(self._retry_at - time.monotonic(), _LONGEST_WAIT_SECONDS))
        if self._more or self._making_ready:
            return 0.0
        longest = _RESTORING_WAIT_SECONDS if self._parts.restorer.busy else _LONGEST_WAIT_SECONDS
        if self._sweeping.waits or self._sweeping.behind:
            longest = min(longest, _TOMBSTONES_WAIT_SECONDS)
        due = self._next_due_ms()
        if due is None:
            return longest
        left = due / 1000 - time.time()
        if left <= 0:
            return 0.0
        if left < 0.001:
            time.sleep(left)  # finer than Kafka's own waiting
            return 0.0
        return min(left, longest)

    def _next_due_ms(self) -> int | None:
        return min(
            (wake for o in self._owned.values() if (wake := o.wake_ms) is not None),
            default=None,
        )

    def _work_is_due(self) -> bool:
        if self._retry_at:
            if time.monotonic() < self._retry_at:
                return False
            self._retry_at = 0.0
            return True
        if self._more:
            return True
        due = self._next_due_ms()
        left = None if due is None else due - now_ms()
        if left is not None and left <= 0:
            return True
        held = any(owned.held for owned in self._owned.values())
        return held and (left is None or left > _GATHER_MS)

    # turns

    def _turn(self) -> None:
        now = now_ms()
        goes_on, self._more = self._more, False
        turns = self._begin(now)
        most = self._parts.turn_max_records * _MOST_DELIVERED
        budget = Budget(most if goes_on else min(most, _FIRST_BATCH), _TURN_MAX_BYTES)
        budget.delivered = sum(turn.delivered_at_once for turn in turns.values())
        for turn in turns.values():
            turn.collect_ready(budget)
        for turn in turns.values():
            turn.collect(budget)
        outcomes = {number: turn.finish() for number, turn in turns.items()}
        works = [
            Work(number, outcome, outcome.writes(self._owned[number].partition.checkpoint))
            for number, outcome in outcomes.items()
            if self._must_write(number, outcome, now)
        ]
        self._more = any(outcome.more for outcome in outcomes.values())
        if works and not self._write(works):
            return
        for work in works:
            self._settle(work, now)
        for number in outcomes:
            owned = self._owned[number]
            owned.held = []
            owned.next_due_ms = owned.partition.next_due_ms()
        self._garbage.take(*(work.outcome.deliveries for work in works))

    def _begin(self, now: int) -> dict[int, PartitionTurn]:
        """Take in what was read; partitions take turns at being first, none starves the others."""
        self._turns += 1
        numbers = sorted(n for n, owned in self._owned.items() if self._has_work(owned, now))
        first = self._turns % max(len(numbers), 1)
        turns: dict[int, PartitionTurn] = {}
        for number in numbers[first:] + numbers[:first]:
            owned = self._owned[number]
            self._watch_clock(number, owned, now)
            if not owned.waiting:
                turn = owned.partition.turn(judge=self._parts.destinations, now_ms=now)
                turn.take_in(owned.held)
                turns[number] = turn
        return turns

    def _has_work(self, owned: Owned, now: int) -> bool:
        wake = owned.wake_ms
        return (
            bool(owned.held)
            or (wake is not None and wake <= now)
            or now - owned.committed_ms > _CONFIRM_EVERY_MS
        )

    def _watch_clock(self, number: int, owned: Owned, now: int) -> None:
        behind = owned.partition.must_wait(now)
        if behind and not owned.waiting:
            ahead = owned.partition.checkpoint.cursor_ms - now
            _log.warning("partition %d waits: our clock is %d ms behind", number, ahead)
        if behind != owned.waiting:
            owned.waiting = behind
            self._parts.metrics.enter(number, "clock-behind" if behind else "active")

    def _must_write(self, number: int, outcome: Outcome, now: int) -> bool:
        owned = self._owned[number]
        before = owned.partition.checkpoint
        if outcome.writes(before):
            return True
        idle_ms = now - owned.committed_ms
        if outcome.checkpoint.position != before.position:
            return idle_ms > _POSITION_EVERY_MS
        return idle_ms > _CONFIRM_EVERY_MS and before.position > 0

    def _write(self, works: list[Work]) -> bool:
        """Whether the turn stands; if not, nothing has happened and it is tried again."""
        parts = self._parts
        try:
            parts.writer.write(works, parts.group_token(), self._meanwhile)
        except DestinationError as error:
            parts.metrics.turns_failed.inc()
            _log.warning("delivery refused: %s", error)
            parts.destinations.failed(error.faults)
            parts.destinations.suspect(error.suspects)
            self._more = True
            return False
        except InterruptedWriteError as error:
            parts.metrics.turns_failed.inc()
            _log.warning("transaction interrupted, trying again: %s", error)
            self._retry_at = time.monotonic() + self._retry_pause
            self._retry_pause = min(self._retry_pause * 2, _RETRY_SECONDS[1])
            return False
        self._retry_pause = _RETRY_SECONDS[0]
        parts.destinations.delivered(
            topic for work in works for topic in map(destination_of, work.outcome.deliveries)
        )
        return True

    def _settle(self, work: Work, now: int) -> None:
        owned = self._owned[work.partition]
        outcome = work.outcome
        owned.store.in_step(now)
        owned.partition.settle(outcome)
        owned.unswept += outcome.fired
        owned.committed_ms = now
        metrics = self._parts.metrics
        metrics.count(outcome.counts)
        written_ms = now_ms()
        wanted = Counter(map(wanted_ms_of, outcome.deliveries))
        metrics.observe_lateness({written_ms - ms: number for ms, number in wanted.items()})

    def _make_ready(self) -> bool:
        """Make some more of what is due soon ready; whether there was any."""
        # by whole seconds, so that tables are not asked again in every step
        until = actions.order_key((now_ms() + _AHEAD_MS) // 1_000 * 1_000, b"")
        share = max(len(self._owned), 1)
        return any(
            len(owned.partition.ahead) < _AHEAD_MOST // share
            and owned.partition.ahead.bytes < _AHEAD_MOST_BYTES // share
            and owned.partition.ahead.extend(until=until, most=_AHEAD_SLICES[self._more])
            for owned in self._owned.values()
        )

    def _meanwhile(self) -> bool:
        """Something useful while Kafka works; whether there is more of it."""
        if self._garbage.step(most=_GARBAGE_KEPT) or self._make_ready():
            return True
        if not self._more:
            self._sweeping.step(now_ms())
        return False

    # partitions come and go

    def _follow_assignment(self) -> None:
        group, restorer = self._parts.group, self._parts.restorer
        if group.cast_out:
            # Nothing of ours is ours any more, so starting over costs nothing; and a producer that
            # has lived through what led to this may hang in its next transaction.
            raise BrokenError("the consumer group went on without this dispatcher")
        if group.lost:
            for number in group.lost:
                restorer.cancel(number)
                self._give_up(number)
            group.lost.clear()
        if group.gained:
            for number in group.gained:
                self._parts.metrics.enter(number, "restoring")
            _log.info("taking over partitions %s", sorted(group.gained))
            restorer.submit(group.gained)
            group.gained.clear()
        while not restorer.results.empty():
            self._take_restored(restorer.results.get())

    def _take_restored(self, restored: Restored) -> None:
        number = restored.number
        if not self._parts.restorer.wanted(restored):
            if restored.store is not None:
                restored.store.close()
            return
        if restored.partition is None or restored.store is None:
            _log.error("partition %d is not served: %s", number, restored.error)
            self._unservable[number] = str(restored.error)
            self._parts.metrics.enter(number, "checkpoint-lost")
            return
        cursor = restored.partition.checkpoint.cursor
        owned = Owned(restored.partition, restored.store, restored.store.count_up_to(cursor))
        owned.next_due_ms = restored.partition.next_due_ms()
        owned.committed_ms = now_ms()
        self._owned[number] = owned
        self._parts.metrics.enter(number, "active")
        self._parts.metrics.takeover_seconds.observe(restored.seconds)
        self._parts.group.begin(number, restored.partition.checkpoint.position)
        _log.info(
            "serving partition %d: %d pending, taken over in %.2f s",
            number,
            restored.store.rows - owned.unswept,
            restored.seconds,
        )

    def _give_up(self, number: int) -> None:
        self._unservable.pop(number, None)
        if owned := self._owned.pop(number, None):
            owned.store.close()
        self._parts.metrics.enter(number, None)

    # tidying up

    def _tidy(self, now: int) -> None:
        if self._busy_within(_MARGIN_MS, now) and now - self._tidied_ms < 5 * _TIDY_EVERY_MS:
            return
        if now - self._tidied_ms >= _TIDY_EVERY_MS:
            self._tidied_ms = now
            self._parts.destinations.refresh_if_old()
            self._publish(now)
            self._garbage.search(now, quiet=not self._busy_within(_QUIET_MS, now))
            if any(now - o.committed_ms > _CONFIRM_EVERY_MS for o in self._owned.values()):
                self._more = True

    def _busy_within(self, margin_ms: int, now: int) -> bool:
        due = self._next_due_ms()
        return self._more or bool(self._retry_at) or (due is not None and due - now < margin_ms)

    def _publish(self, now: int) -> None:
        metrics = self._parts.metrics
        late = actions.order_key(now - _OVERDUE_MS, b"")
        for number, owned in self._owned.items():
            metrics.pending.labels(number).set(max(owned.store.rows - owned.unswept, 0))
            overdue = 0
            if owned.next_due_ms is not None and owned.next_due_ms < now - _OVERDUE_MS:
                overdue = owned.store.count_between(
                    after=owned.partition.checkpoint.cursor, until=late, limit=_OVERDUE_COUNTED
                )
            metrics.overdue.labels(number).set(overdue)
        metrics.next_due.set((self._next_due_ms() or 0) / 1000)
