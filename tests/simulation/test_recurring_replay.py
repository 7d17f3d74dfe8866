"""A recurring schedule whose request comes again after a long outage runs once, not twice.

The explorer finds this too (`old-replay-starts-second-run`); by hand it is easier to follow.
"""

import pytest
from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.entries import LogRecord
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.verdicts import Budget
from simulation.memory_table import MemoryTable
from simulation.surroundings import AllReady

_BEGAN_MS = 1_700_000_000_000
_HOUR_MS = 60 * 60 * 1000
_OUTAGE_MS = 48 * _HOUR_MS


def _turn(partition: Partition, records: list[LogRecord], now_ms: int) -> Outcome:
    turn = partition.turn(judge=AllReady(), now_ms=now_ms)
    turn.take_in(records)
    turn.collect(Budget(100))
    outcome = turn.finish()
    partition.settle(outcome)
    return outcome


@pytest.mark.parametrize("request_id", ["", "nightly"])
def test_a_replay_after_an_outage_does_not_start_a_second_run(request_id: str) -> None:
    plan = Plan(Verb.ADD, _BEGAN_MS, "orders", request_id, cron="0 * * * *", timezone="UTC")
    headers = actions.action_headers([], b"k", plan)
    partition = Partition(
        0, table=MemoryTable(), checkpoint=Checkpoint(), policy=Policy("requests", writer="d")
    )
    _turn(partition, [LogRecord(0, _BEGAN_MS, b"0/0/0", b"v", headers)], _BEGAN_MS)
    assert len(_turn(partition, [], _BEGAN_MS + _HOUR_MS).deliveries) == 1

    back_ms = _BEGAN_MS + _OUTAGE_MS
    _turn(partition, [LogRecord(9, _BEGAN_MS + 1, b"0/0/0", b"v", headers)], back_ms)
    for hours in (1, 2, 3):
        outcome = _turn(partition, [], back_ms + hours * _HOUR_MS)
        assert len(outcome.deliveries) == 1
        assert len(outcome.rearmed) == 1
