"""What is read ahead of its time, from a table in memory."""

from collections.abc import Set

from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.dispatch.ahead import ReadAhead
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.deliveries import VALUE, deliver
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.table import Changes
from punctual_worker.dispatch.verdicts import Budget, Verdict
from simulation.memory_table import MemoryTable

UNTIL = actions.order_key(1_000, b"")


def entry(offset: int, *, value: bytes = b"v", partition: int | None = None) -> Entry:
    plan = Plan(Verb.ADD, offset, "somewhere", partition=partition)
    return Entry(b"0/0/%d" % offset, plan, None, value, [])


def window(*entries: Entry, marks: tuple[Entry, ...] = ()) -> ReadAhead:
    table = MemoryTable()
    puts: dict[bytes, Entry | None] = {one.order: one for one in entries}
    table.write(Changes(puts=puts | {one.order: None for one in marks}), position=1)
    return ReadAhead(
        table, cursor=b"", render=lambda one: deliver(one, requests_topic="r", trace=False)
    )


def test_many_marks_in_a_row_hide_nothing_behind_them() -> None:
    ahead = window(entry(500), marks=tuple(entry(offset) for offset in range(100)))
    assert [order for order, _ in ahead.due(UNTIL, after=b"")] == [entry(500).order]


def test_a_run_ends_before_an_odd_one_and_where_no_more_fits() -> None:
    ahead = window(*(entry(n, value=b"x" * 1_000) for n in range(8)), entry(8, partition=1))
    while ahead.extend(until=UNTIL):
        pass
    everything = ahead.plain_run(UNTIL, 100, most_bytes=1 << 20, after=b"")
    assert len(everything.deliveries) == 8
    assert everything.last == entry(7).order
    some = ahead.plain_run(UNTIL, 100, most_bytes=everything.row_bytes // 2, after=b"")
    assert (len(some.deliveries), some.last) == (4, entry(3).order)
    assert some.row_bytes == everything.row_bytes // 2
    none = ahead.plain_run(UNTIL, 100, most_bytes=10, after=b"")
    assert (none.deliveries, none.row_bytes) == ([], 0)
    assert [one[VALUE] for _, one in ahead.due(UNTIL, after=some.last)][-1] == b"v"


def test_a_run_goes_on_only_where_the_window_ends() -> None:
    ahead = window(*(entry(n) for n in range(8)), entry(8, partition=1), entry(9))
    nothing_read = ahead.plain_run(UNTIL, 100, most_bytes=1 << 20, after=b"")
    assert (nothing_read.deliveries, nothing_read.goes_on) == ([], True)
    while ahead.extend(until=UNTIL):
        pass
    upto_odd = ahead.plain_run(UNTIL, 100, most_bytes=1 << 20, after=b"")
    assert (len(upto_odd.deliveries), upto_odd.goes_on) == (8, False)
    at_odd = ahead.plain_run(UNTIL, 100, most_bytes=1 << 20, after=upto_odd.last)
    assert (at_odd.deliveries, at_odd.goes_on) == ([], False)
    behind_it = ahead.plain_run(UNTIL, 100, most_bytes=1 << 20, after=entry(8).order)
    assert (len(behind_it.deliveries), behind_it.goes_on) == (1, True)
    without_room = ahead.plain_run(UNTIL, 100, most_bytes=10, after=b"")
    assert (without_room.deliveries, without_room.goes_on) == ([], False)


class OnlyTogether:
    """All destinations are well; a message that is asked about by itself is a mistake."""

    def judge(self, entry: Entry) -> Verdict:
        raise AssertionError(f"{entry.key!r} was decided by itself")

    def all_ready(self, destinations: Set[str]) -> bool:
        return True


def test_a_burst_that_was_not_made_ready_fires_together_all_the_same() -> None:
    table = MemoryTable()
    table.write(Changes(puts={one.order: one for one in map(entry, range(3_000))}), position=1)
    policy = Policy(requests_topic="requests", writer="me")
    partition = Partition(0, table=table, checkpoint=Checkpoint(position=1), policy=policy)
    turn = partition.turn(judge=OnlyTogether(), now_ms=10_000)
    budget = Budget(2_000)
    turn.collect_ready(budget)
    turn.collect(budget)
    assert len(turn.finish().deliveries) == 2_000
