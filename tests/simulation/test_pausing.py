"""PAUSE and RESUME of recurring and single schedules, followed by hand.

The explorer mixes them with everything else; here the misfire rules are easier to see.
"""

import pytest
from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.entries import LogRecord
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.verdicts import Budget
from simulation.memory_table import MemoryTable
from simulation.surroundings import AllReady

_BEGAN_MS = 1_700_000_000_000 // 60_000 * 60_000
_MINUTE_MS = 60_000


class _Dispatcher:
    """One partition, and how many deliveries each turn leads to."""

    def __init__(self) -> None:
        self.partition = Partition(
            0, table=MemoryTable(), checkpoint=Checkpoint(), policy=Policy("requests", writer="d")
        )
        self._offset = 0

    def asks(self, plan: Plan, now_ms: int) -> int:
        record = LogRecord(
            self._offset,
            now_ms,
            f"0/0/{self._offset}".encode(),
            b"v",
            actions.action_headers([], b"k", plan),
        )
        self._offset += 1
        return self.turn(now_ms, [record])

    def turn(self, now_ms: int, records: list[LogRecord] | None = None) -> int:
        turn = self.partition.turn(judge=AllReady(), now_ms=now_ms)
        turn.take_in(records or [])
        turn.collect(Budget(100))
        outcome = turn.finish()
        self.partition.settle(outcome)
        return len(outcome.deliveries)

    def runs(self, since_ms: int, until_ms: int) -> int:
        """Turns whenever something is due."""
        delivered, now_ms = 0, since_ms
        while now_ms <= until_ms:
            delivered += self.turn(now_ms)
            due_ms = self.partition.next_due_ms()
            if due_ms is None:
                break
            now_ms = max(due_ms, now_ms + 1)
        return delivered


@pytest.mark.parametrize(("misfire", "caught_up"), [("all", 10), ("once", 1), ("skip", 0)])
def test_what_a_recurring_schedule_missed_while_paused_follows_its_rule(
    misfire: str, caught_up: int
) -> None:
    dispatcher = _Dispatcher()
    cron = Plan(Verb.ADD, _BEGAN_MS, "orders", "tick", cron="* * * * *", misfire=misfire)
    dispatcher.asks(cron, _BEGAN_MS)
    assert dispatcher.runs(_BEGAN_MS, _BEGAN_MS + 2 * _MINUTE_MS) == 2
    paused_ms = _BEGAN_MS + 2 * _MINUTE_MS + 1
    assert dispatcher.asks(Plan(Verb.PAUSE, 0, "", "tick"), paused_ms) == 0
    assert dispatcher.partition.next_due_ms() is None
    resumed_ms = _BEGAN_MS + 12 * _MINUTE_MS + 30_000
    assert dispatcher.runs(paused_ms, resumed_ms) == 0
    dispatcher.asks(Plan(Verb.RESUME, 0, "", "tick"), resumed_ms)
    assert dispatcher.runs(resumed_ms, resumed_ms + 20_000) == caught_up
    assert dispatcher.runs(resumed_ms + 20_000, resumed_ms + 3 * _MINUTE_MS) == 3


def test_a_single_one_resumed_before_its_time_comes_at_its_time() -> None:
    dispatcher = _Dispatcher()
    due_ms = _BEGAN_MS + _MINUTE_MS
    dispatcher.asks(Plan(Verb.ADD, due_ms, "orders", "once"), _BEGAN_MS)
    dispatcher.asks(Plan(Verb.PAUSE, 0, "", "once"), _BEGAN_MS + 1)
    dispatcher.asks(Plan(Verb.PAUSE, 0, "", "once"), _BEGAN_MS + 2)
    dispatcher.asks(Plan(Verb.RESUME, 0, "", "once"), _BEGAN_MS + 3)
    assert dispatcher.partition.next_due_ms() == due_ms
    assert dispatcher.runs(_BEGAN_MS + 4, due_ms - 1) == 0
    assert dispatcher.turn(due_ms) == 1


def test_one_that_is_replaced_while_paused_is_not_paused_any_more() -> None:
    dispatcher = _Dispatcher()
    dispatcher.asks(Plan(Verb.ADD, _BEGAN_MS + 10, "orders", "once"), _BEGAN_MS)
    dispatcher.asks(Plan(Verb.PAUSE, 0, "", "once"), _BEGAN_MS + 1)
    dispatcher.asks(Plan(Verb.REPLACE, _BEGAN_MS + 20, "orders", "once"), _BEGAN_MS + 2)
    assert dispatcher.turn(_BEGAN_MS + 20) == 1
    assert dispatcher.asks(Plan(Verb.RESUME, 0, "", "once"), _BEGAN_MS + 21) == 0
