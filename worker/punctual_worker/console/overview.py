"""The overview and the pictures of what is due when; remembered for a second."""

import threading
import time
from typing import Final, NamedTuple

from punctual_worker.console import models
from punctual_worker.console.filters import Filters
from punctual_worker.console.schema import HOUR_MS
from punctual_worker.console.service import Console
from punctual_worker.contract.times import format_ms

_REMEMBER_SECONDS: Final = 1.0
_MINUTE_MS: Final = 60_000
OVERDUE_MS: Final = 1_000
"""As the dispatcher counts: more than a second late."""


class Span(NamedTuple):
    """A picture's frame."""

    name: str
    step_ms: int
    buckets: int


SPANS: Final = {
    "hour": Span("next hour", _MINUTE_MS, 60),
    "day": Span("next day", HOUR_MS, 24),
    "week": Span("next week", 4 * HOUR_MS, 42),
    "month": Span("next 30 days", 24 * HOUR_MS, 30),
}


class Picture(NamedTuple):
    """How many are due in each stretch of a span."""

    span: Span
    start: int
    counts: list[int]


class Overviews:
    """Answers from any thread; asks the view at most once a second."""

    def __init__(self, console: Console, *, read_only: bool) -> None:
        self._console = console
        self._read_only = read_only
        self._lock = threading.Lock()
        self._latest: tuple[float, models.Overview] | None = None

    def get(self) -> models.Overview:
        """Everything at a glance."""
        with self._lock:
            if self._latest is None or time.monotonic() - self._latest[0] > _REMEMBER_SECONDS:
                self._latest = (time.monotonic(), self._make())
            return self._latest[1]

    def picture(self, name: str, filters: Filters | None = None) -> Picture:
        """How many are due when, from now on."""
        span = SPANS[name]
        now = self._console.now_ms()
        unit = _MINUTE_MS if span.step_ms < HOUR_MS else HOUR_MS
        start = now // unit * unit
        counts = self._console.queries.histogram(
            filters or Filters(), start=start, step=span.step_ms, buckets=span.buckets
        )
        return Picture(span, start, counts)

    def status(self) -> models.ViewStatus:
        """How far the view is behind."""
        lag = self._console.follower.lag()
        return models.ViewStatus(
            complete=lag.complete,
            behind_records=lag.records,
            behind_seconds=round(lag.seconds, 3),
            trouble=lag.trouble,
        )

    def _make(self) -> models.Overview:
        console, queries, now = self._console, self._console.queries, self._console.now_ms()

        def due_within(ms: int) -> int:
            return queries.count(Filters(due_from=now, due_to=now + ms)).number

        next_due = queries.next_due()
        figures = console.parts.delivery()
        return models.Overview(
            app_id=console.settings.app_id,
            now=format_ms(now),
            view=self.status(),
            read_only=self._read_only,
            pending=queries.count(Filters()).number,
            overdue=queries.count(Filters(due_to=now - OVERDUE_MS)).number,
            due_next_hour=due_within(HOUR_MS),
            due_next_day=due_within(24 * HOUR_MS),
            due_next_week=due_within(7 * 24 * HOUR_MS),
            next_due=None if next_due is None else format_ms(next_due),
            recurring=queries.count(Filters(recurring=True)).number,
            paused=queries.count(Filters(paused=True)).number,
            destinations=[
                models.DestinationCount(destination=name, count=number)
                for name, number in queries.by_destination()
            ],
            rejections=[
                models.CodeCount(code=code, count=number)
                for code, number in console.stories.rejections_by_code()
            ],
            delivery=figures
            and models.DeliveryFigures(
                per_second=round(figures.per_second, 2),
                lateness_p50_ms=figures.p50_ms,
                lateness_p99_ms=figures.p99_ms,
            ),
            parts=[
                models.PartHealth(name=part.name, ready=part.ready, says=part.says[:300])
                for part in console.parts.latest
            ],
        )
