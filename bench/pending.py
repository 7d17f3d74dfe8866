"""One dispatcher with more and more pending: what it costs to take in, to hold, to fire and to
come back.

The levels are reached one after the other. What waits is due in days, so that nothing of it fires;
bursts that do fire come on top of it.
"""

import contextlib
import random
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from support.processes import Part

from bench.bursts import fire
from bench.observing import Reader, account, bare_read
from bench.records import BenchError
from bench.report import Report
from bench.scale import Scale, in_words
from bench.stack import App, Stack, cpu_seconds, memory_mb, taken_in, wait_taken_in

_DAY_MS: Final = 86_400_000
_WEEK_MS: Final = 7 * _DAY_MS
_LONG_SESSION_MS: Final = 300_000
"""So that the dispatcher may be stopped while a million actions are written."""
_OVERDUE: Final = 800
_FLAT_MEMORY: Final = 1.10
_MOST_MB: Final = 400
_FLAT_TIME: Final = 1.25
_SEED: Final = 1


class _MemorySamples:
    """Resident memory by what is pending, sampled every two seconds while the block lasts."""

    def __init__(self, dispatcher: Part, points: list[tuple[float, float]]) -> None:
        self._points = points
        self._dispatcher = dispatcher
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(2):
            with contextlib.suppress(OSError):  # it may be stopped just now
                pending = self._dispatcher.metric("punctual_pending")
                self._points.append((pending, memory_mb(self._dispatcher)))


class _Growing:
    """The dispatcher, and how much is pending in it."""

    def __init__(self, app: App, scale: Scale, report: Report) -> None:
        self._app = app
        self._scale = scale
        self._report = report
        self._chance = random.Random(_SEED)
        self._waiting_topic = app.topic("waiting")
        self.pending = 0
        self.memory_mb: list[tuple[float, float]] = []
        self.dispatcher = app.dispatcher(session_timeout_ms=_LONG_SESSION_MS)

    def grow(self, level: int) -> None:
        """Write what is missing to this level, and wait until it is taken in."""
        total = taken_in(self.dispatcher) + level - self.pending
        with _MemorySamples(self.dispatcher, self.memory_mb):
            self._app.actions.write(self._waiting_topic, self._far_dues(level - self.pending))
            wait_taken_in(total, self.dispatcher)
        self.pending = level

    def take_in(self, level: int) -> None:
        """The same, measured: the dispatcher stands still until everything is written."""
        count = level - self.pending
        total = taken_in(self.dispatcher) + count
        self.dispatcher.freeze()
        try:
            began = time.time()
            self._app.actions.write(self._waiting_topic, self._far_dues(count))
            if time.time() - began > _LONG_SESSION_MS / 1500:
                raise BenchError("writing took too long: this machine is too busy to measure on")
        finally:
            began = time.time()
            self.dispatcher.thaw()
        with _MemorySamples(self.dispatcher, self.memory_mb):
            wait_taken_in(total, self.dispatcher)
            rate = count / (time.time() - began)
        self.pending = level
        _, limit = bare_read(self._app.servers, self._app.topics.actions)
        self._report.add(
            f"taking actions in, up to {in_words(level)} pending",
            rate,
            "actions/s",
            limit=limit,
            aim="≥ 0.35 of the limit",
            met=rate >= 0.35 * limit,
        )

    def _far_dues(self, count: int) -> Iterator[int]:
        first = round(time.time() * 1000) + _DAY_MS
        return (first + self._chance.randrange(_WEEK_MS) for _ in range(count))

    def microseconds_per_delivery(self, level: int) -> float:
        """Of messages due at one instant, with the others waiting behind them."""
        count = self._scale.growth_burst
        took = []
        for number in range(self._scale.growth_rounds):
            name = f"growth-{level}-{number}"
            lead = self._scale.lead_seconds(count)
            burst = fire(self._app, self.dispatcher, name, count, lead)
            took.append(burst.seconds / count * 1e6)
            self._app.wait_until_swept()
        return statistics.median(took)


def measure(stack: Stack, scale: Scale, report: Report) -> None:
    """All levels, then what a restart costs on top of the last."""
    with stack.app("pending") as app:
        growing = _Growing(app, scale, report)
        memory = {0: memory_mb(growing.dispatcher)}
        costs: dict[int, float] = {}
        for level in scale.pending:
            if level == scale.main_level:
                growing.take_in(level)
            else:
                growing.grow(level)
            app.wait_until_swept()
            memory[level] = memory_mb(growing.dispatcher)
            costs[level] = growing.microseconds_per_delivery(level)
            if level == scale.main_level:
                _idle(app, growing.dispatcher, scale, report)
        report.curve("memory", "resident memory", sorted([*memory.items(), *growing.memory_mb]))
        _report_memory(report, memory)
        _report_growth(report, costs)
        _restarts(app, growing, scale, report)


def _report_memory(report: Report, memory: dict[int, float]) -> None:
    levels = sorted(memory)
    for level in levels[:1] + levels[-2:]:
        report.add(
            f"memory of a dispatcher, {in_words(level)} pending",
            memory[level],
            "MB",
            aim=f"< {_MOST_MB} MB",
            met=memory[level] < _MOST_MB,
        )
    few, many = levels[-2:]
    growth = memory[many] / memory[few]
    report.add(
        f"memory, {in_words(many)} pending to {in_words(few)} pending",
        growth,
        "times",
        aim=f"≤ {_FLAT_MEMORY} times",
        met=growth <= _FLAT_MEMORY,
    )


def _report_growth(report: Report, costs: dict[int, float]) -> None:
    first = costs[min(costs)]
    for level, cost in costs.items():
        aim = (
            {"aim": f"≤ {_FLAT_TIME} times the first", "met": cost <= _FLAT_TIME * first}
            if level == max(costs)
            else {}
        )
        report.add(f"time per delivery, {in_words(level)} pending", cost, "µs", **aim)


def _idle(app: App, dispatcher: Part, scale: Scale, report: Report) -> None:
    """Nothing comes and nothing is due: what do they use?"""
    intake = app.intake()
    time.sleep(scale.idle_seconds)  # what it does to start has to be over
    parts = {"dispatcher": (dispatcher, 1.0), "intake": (intake, 10.0)}
    before = {name: cpu_seconds(part) for name, (part, _) in parts.items()}
    began = time.monotonic()
    time.sleep(scale.idle_seconds)
    seconds = time.monotonic() - began
    for name, (part, most) in parts.items():
        used = 100 * (cpu_seconds(part) - before[name]) / seconds
        report.add(
            f"idle {name}, {in_words(scale.main_level)} pending",
            used,
            "% of a core",
            aim=f"≤ {most:g} %",
            met=used <= most,
        )
    intake.stop(60)


def _restarts(app: App, growing: _Growing, scale: Scale, report: Report) -> None:
    """The dispatcher ends, something falls due, and it comes back."""
    pending = in_words(growing.pending)
    name = f"restart with {pending} pending"
    first = growing.dispatcher
    seconds, second = _overdue_after(app, first, scale, first.stop, "kept")
    report.add(
        f"{name}, store kept: first overdue message after",
        seconds,
        "s",
        aim="≤ 3 s",
        met=seconds <= 3,
    )
    if scale.restart_after_kill:
        seconds, second = _overdue_after(app, second, scale, second.kill, "killed")
        report.add(f"{name}, store kept, after kill -9: first overdue message after", seconds, "s")
    count, limit = bare_read(app.servers, app.topics.actions)

    def lose() -> None:
        second.stop(60)
        shutil.rmtree(second.folder)

    seconds, _ = _overdue_after(app, second, scale, lose, "lost")
    report.add(f"{name}, store lost: first overdue message after", seconds, "s")
    rate = count / seconds
    report.add(
        f"{name}, store lost: records read until then",
        rate,
        "records/s",
        limit=limit,
        aim="≥ 0.35 of the limit",
        met=rate >= 0.35 * limit,
    )


def _overdue_after(
    app: App, dispatcher: Part, scale: Scale, end: Callable[[], object], name: str
) -> tuple[float, Part]:
    """Seconds from the start of a process to the first message that fell due without it."""
    # A killed member is in the group until its session times out: that is take-over, not this.
    lead_seconds = scale.lead_seconds(_OVERDUE) + scale.restart_margin_seconds
    scheduled = app.schedule(
        f"overdue-{name}", dispatcher, count=_OVERDUE, lead_seconds=lead_seconds, warm=False
    )
    topic, dues_ms, _ = scheduled
    end()
    if time.time() > scheduled.start_s:
        raise BenchError("the dispatcher took too long to end: something fell due meanwhile")
    reader = Reader(app.servers, topic, from_end=True)
    time.sleep(max(scheduled.start_s + 1 - time.time(), 0))
    began = time.time()
    again = app.dispatcher(dispatcher.folder.name, wait=False)
    seen = reader.read(_OVERDUE, patience=1800, settle=2)
    reader.close()
    account(seen, dues_ms)
    again.wait_ready()
    return min(one.seen_s for one in seen) - began, again
