"""How old a local store is: as old as what it knows, however lately somebody wrote to it.

The explorer has not found this one by chance (it takes a dispatcher that is asleep for longer than
the tombstones' retention in the middle of a turn), so it is played by hand on the real take-over.
"""

import pytest
from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.restoring import TakeOver, tombstone_headers
from simulation.log import PartitionLog
from simulation.memory_table import LocalStore, MemoryTable

_RETENTION_MS = 100_000
_KEY = b"0/0/0"
_DUE_MS = 10_000_000


def _take_over(log: PartitionLog, table: MemoryTable, checkpoint: Checkpoint) -> set[bytes]:
    take_over = TakeOver(table, checkpoint)
    take_over.feed(log.read(take_over.read_from, 100)[0])
    take_over.end_of_log()
    return set(table.pending(checkpoint.cursor))


@pytest.mark.parametrize(
    ("touched_on_waking", "pending"), [(False, set()), (True, {_KEY})], ids=["by-age", "touched"]
)
def test_a_store_that_slept_is_not_young_because_it_was_touched(
    touched_on_waking: bool, pending: set[bytes]
) -> None:
    log, store = PartitionLog(0), LocalStore(max_age_ms=_RETENTION_MS // 2)
    plan = Plan(Verb.ADD, _DUE_MS, "orders", "id-0")
    log.append(_KEY, b"v", actions.action_headers([], None, plan), 0)
    assert _take_over(log, store.open(0, 0), Checkpoint(1, b"", {"0": {0: 0}})) == {_KEY}

    # It falls asleep. Another owner cancels the entry, and in time even the tombstone is gone.
    order = actions.order_key(_DUE_MS, _KEY)
    log.append(_KEY, None, tombstone_headers(order), 1)
    log.compact(log.end, 1, _RETENTION_MS)
    woke_ms = _RETENTION_MS + 2
    log.compact(log.end, woke_ms, _RETENTION_MS)
    assert log.read(0, 100)[0] == []

    if touched_on_waking:
        store.followed(0, woke_ms)
    checkpoint = Checkpoint(2, b"", {"0": {0: 1}})
    assert _take_over(log, store.open(0, woke_ms), checkpoint) == pending
