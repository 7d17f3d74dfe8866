"""When to reconcile what: at once after an event, again after a while, later after a failure.

Each Scheduler is worked on by one task at a time; events that come meanwhile become one more run.
Kopf's own retries are not used, because they are written into the object's annotations: a failing
Scheduler would be a write every few seconds.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Final

from punctual_operator.api.names import SchedulerKey
from punctual_operator.metrics import OperatorMetrics

_GATHER_SECONDS: Final = 0.05
"""Events come in bursts: this long is waited for more of them."""
_REST_SECONDS: Final = 0.5
"""Least pause between two runs for the same Scheduler."""
_FAILED_SECONDS: Final = (2.0, 120.0)
_WAITING_SECONDS: Final = (1.0, 30.0)
_CLOSE_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class Result(Enum):
    """How a reconcile went."""

    SETTLED = "settled"
    """All is as wanted: look again at the next resync."""
    WAITING = "waiting"
    """Something is under way; an event will most likely tell when it is done."""
    FAILED = "failed"
    """Something could not be done: again, with growing pauses."""
    GONE = "gone"
    """There is nothing to look after any more."""


@dataclass
class _Entry:
    handle: asyncio.TimerHandle | None = None
    due: float = 0.0
    running: bool = False
    again: bool = False
    unsettled: int = 0
    """Runs in a row that did not settle."""
    failed: bool = False
    """Whether the last run did."""
    ended_at: float = 0.0


class WorkQueue:
    """Runs `work` for keys, a bounded number at the same time."""

    def __init__(
        self,
        work: Callable[[SchedulerKey], Awaitable[Result]],
        *,
        metrics: OperatorMetrics,
        resync_seconds: float,
        concurrency: int,
    ) -> None:
        self._work = work
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._slots = asyncio.Semaphore(concurrency)
        # What fails may take long to, as when a broker does not answer: others find slots yet.
        self._slots_of_failing = asyncio.Semaphore(max(concurrency // 2, 1))
        self._entries: dict[SchedulerKey, _Entry] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        metrics.queued.set_function(lambda: sum(e.handle is not None for e in self._soon()))

    def add(self, key: SchedulerKey) -> None:
        """Something has happened to this one."""
        entry = self._entries.setdefault(key, _Entry())
        if entry.running:
            entry.again = True
        else:
            rest = entry.ended_at + _REST_SECONDS - time.monotonic()
            self._schedule(key, entry, max(_GATHER_SECONDS, rest))

    async def close(self) -> None:
        """Begin nothing more, and wait for what is under way."""
        self._closed = True
        for entry in self._entries.values():
            if entry.handle is not None:
                entry.handle.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)

    def _soon(self) -> list[_Entry]:
        now = time.monotonic()
        return [entry for entry in self._entries.values() if entry.due <= now + 1]

    def _schedule(self, key: SchedulerKey, entry: _Entry, delay: float) -> None:
        due = time.monotonic() + delay
        if entry.handle is not None:
            if entry.due <= due:
                return
            entry.handle.cancel()
        entry.due = due
        entry.handle = asyncio.get_running_loop().call_later(delay, self._start, key, entry)

    def _start(self, key: SchedulerKey, entry: _Entry) -> None:
        entry.handle = None
        if self._closed:
            return
        entry.running = True
        entry.again = False
        task = asyncio.create_task(self._run(key, entry), name=f"reconcile {key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: SchedulerKey, entry: _Entry) -> None:
        async with self._slots_of_failing if entry.failed else nullcontext(), self._slots:
            began = time.monotonic()
            try:
                result = await self._work(key)
            except Exception:
                # The outermost loop: a mistake of ours must not end the care for this Scheduler.
                _log.exception("reconciling %s failed", key)
                result = Result.FAILED
            self._metrics.reconcile_seconds.observe(time.monotonic() - began)
        entry.running = False
        entry.failed = result is Result.FAILED
        entry.ended_at = time.monotonic()
        if result is Result.GONE:
            if entry.again:
                self._schedule(key, entry, _REST_SECONDS)
            else:
                self._entries.pop(key, None)
            return
        self._metrics.reconciles.labels(result.value).inc()
        delay = self._pause(entry, result)
        if not self._closed:
            self._schedule(key, entry, min(delay, _REST_SECONDS) if entry.again else delay)

    def _pause(self, entry: _Entry, result: Result) -> float:
        if result is Result.SETTLED:
            entry.unsettled = 0
            return self._resync_seconds * _spread()
        least, most = _FAILED_SECONDS if result is Result.FAILED else _WAITING_SECONDS
        pause = min(least * 2.0**entry.unsettled, most)
        entry.unsettled = min(entry.unsettled + 1, 16)
        if result is Result.WAITING:
            pause = min(pause, self._resync_seconds)
        return pause * _spread()


def _spread() -> float:
    """So that hundreds that began together do not stay together."""
    return random.uniform(0.9, 1.1)  # noqa: S311 nothing to guess here
