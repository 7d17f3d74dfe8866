"""When a Scheduler is looked at: at once, again, later, and never twice at the same time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry
from punctual_operator.api.names import SchedulerKey
from punctual_operator.known import KnownSchedulers, needs_look
from punctual_operator.metrics import OperatorMetrics
from punctual_operator.workqueue import Result, WorkQueue

KEY, OTHER = SchedulerKey("ns", "a"), SchedulerKey("ns", "b")


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def make_queue(work: Any, *, resync: float = 3600, concurrency: int = 4) -> WorkQueue:
    return WorkQueue(
        work,
        metrics=OperatorMetrics(CollectorRegistry()),
        resync_seconds=resync,
        concurrency=concurrency,
    )


def test_a_burst_of_events_is_one_run_and_one_more_for_what_came_meanwhile() -> None:
    async def test() -> None:
        runs: list[SchedulerKey] = []
        began, go_on, twice = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work(key: SchedulerKey) -> Result:
            runs.append(key)
            began.set()
            if len(runs) == 2:
                twice.set()
            await go_on.wait()
            return Result.SETTLED

        queue = make_queue(work)
        for _ in range(10):
            queue.add(KEY)
        await began.wait()
        for _ in range(10):
            queue.add(KEY)
        assert runs == [KEY]
        go_on.set()
        await twice.wait()
        await queue.close()
        assert runs == [KEY, KEY]

    run(test)


def test_those_that_failed_before_leave_slots_for_others() -> None:
    async def test() -> None:
        done, hang = asyncio.Event(), asyncio.Event()
        tries: Counter[SchedulerKey] = Counter()

        async def work(key: SchedulerKey) -> Result:
            if key == OTHER:
                done.set()
                return Result.SETTLED
            tries[key] += 1
            if tries[key] > 1:
                await hang.wait()
            return Result.FAILED

        failing = [SchedulerKey("ns", f"failing{number}") for number in range(8)]
        queue = make_queue(work)
        for key in failing:
            queue.add(key)
        while tries.total() < len(failing):
            await asyncio.sleep(0.01)
        for key in failing:
            queue.add(key)  # not to wait for its pause
        while tries.total() < len(failing) + 2:
            await asyncio.sleep(0.01)
        queue.add(OTHER)
        await done.wait()
        assert tries.total() == len(failing) + 2
        hang.set()
        await queue.close()

    run(test)


def test_one_that_hangs_or_breaks_holds_up_no_other() -> None:
    async def test() -> None:
        done, release = asyncio.Event(), asyncio.Event()

        async def work(key: SchedulerKey) -> Result:
            if key == KEY:
                await release.wait()
                raise RuntimeError("a mistake of ours")
            done.set()
            return Result.SETTLED

        queue = make_queue(work)
        queue.add(KEY)
        queue.add(OTHER)
        await done.wait()
        release.set()
        await queue.close()

    run(test)


def test_what_settled_is_looked_at_again_and_what_is_gone_is_not() -> None:
    async def test() -> None:
        seen: list[Result] = []
        over = asyncio.Event()

        async def work(_: SchedulerKey) -> Result:
            seen.append(Result.SETTLED if len(seen) < 2 else Result.GONE)
            if seen[-1] is Result.GONE:
                over.set()
            return seen[-1]

        queue = make_queue(work, resync=0.01)
        queue.add(KEY)
        await over.wait()
        await asyncio.sleep(0.2)
        assert len(seen) == 3
        await queue.close()

    run(test)


def test_failures_come_further_and_further_apart() -> None:
    async def test() -> None:
        async def work(_: SchedulerKey) -> Result:
            return Result.FAILED

        queue = make_queue(work)
        entry = type("Entry", (), {"unsettled": 0})()
        pauses = [queue._pause(entry, Result.FAILED) for _ in range(10)]
        assert 1.5 < pauses[0] < 2.5
        assert pauses[3] > 4 * pauses[0]
        assert 100 < pauses[-1] < 135
        queue._pause(entry, Result.SETTLED)
        assert queue._pause(entry, Result.WAITING) < 1.5
        await queue.close()

    run(test)


def body(version: int, **metadata: Any) -> dict[str, Any]:
    base = {"namespace": "ns", "name": "a", "uid": "1", "generation": 1}
    return {"metadata": {**base, "resourceVersion": str(version), **metadata}}


def test_news_that_come_late_do_not_undo_what_is_known() -> None:
    known = KnownSchedulers()
    known.put(body(5))
    known.put(body(4))
    assert known.get(KEY) == body(5)
    known.remove(body(3, uid="an earlier one by that name"))
    assert known.get(KEY) is not None
    known.remove(body(6))
    assert known.get(KEY) is None


def test_our_own_status_writes_are_no_reason_to_look_again() -> None:
    assert not needs_look(body(1), {**body(2), "status": {"pending": 3}})
    assert needs_look(None, body(1))
    assert needs_look(body(1), body(2, generation=2))
    assert needs_look(body(1), body(2, annotations={"punctual.dev/paused": "true"}))
    assert needs_look(body(1), body(2, deletionTimestamp="now"))
