"""How late single messages are, at steady rates, beside the time of a single-record transaction.

At 100 and 1,000 per second a reader of committed messages reads along, and lateness is until it has
them. At 10,000 per second it would disturb too much: there it is until the broker has written them
(the commit follows), and, coarser, until the dispatcher has committed them, from its own histogram.
"""

import itertools
import math
from typing import Final

from support.processes import Part

from bench import bare_transactions
from bench.observing import Reader, account, percentile, read_all
from bench.report import Report
from bench.scale import Scale
from bench.stack import App, Stack, wait_delivered

_READ_ALONG: Final = (100, 1_000)
_TOO_FAST_TO_READ: Final = 10_000
_HISTOGRAM: Final = "punctual_lateness_seconds_bucket"


def measure(stack: Stack, scale: Scale, report: Report) -> None:
    """All rates, with one dispatcher."""
    with stack.app("lateness") as app:
        dispatcher = app.dispatcher()
        single_ms = bare_transactions.single_record_ms(
            app.servers, app.topic("bare"), min(200, 50 * scale.lateness_seconds)
        )
        for rate in (*_READ_ALONG, _TOO_FAST_TO_READ):
            counted, late = _run(app, dispatcher, rate, scale)
            p50, p99 = percentile(late, 0.5), percentile(late, 0.99)
            until = "written" if rate == _TOO_FAST_TO_READ else "visible"
            name = f"lateness at {rate:,}/s, until {until}"
            report.add(
                f"{name}: p50",
                p50,
                "ms",
                limit=single_ms,
                aim="≤ the limit + 3 ms",
                met=p50 <= single_ms + 3,
            )
            aim = {"aim": "≤ 50 ms", "met": p99 <= 50} if rate == 1_000 else {}
            report.add(f"{name}: p99", p99, "ms", **aim)
            report.add(f"{name}: longest", max(late), "ms")
            report.curve("lateness", f"{rate:,}/s, until {until}", _distribution(late))
            if rate == _TOO_FAST_TO_READ:
                for share, text in ((0.5, "p50"), (0.99, "p99")):
                    committed = _from_histogram(counted, share)
                    report.add(f"lateness at {rate:,}/s, until committed: {text}", committed, "ms")
            app.wait_until_swept()


def _run(
    app: App, dispatcher: Part, rate: int, scale: Scale
) -> tuple[list[tuple[float, float]], list[float]]:
    """What the dispatcher's histogram counted, and how late each message was, in milliseconds."""
    count = rate * scale.lateness_seconds
    scheduled = app.schedule(
        f"at-{rate}",
        dispatcher,
        count=count,
        lead_seconds=scale.lead_seconds(count),
        per_second=rate,
    )
    topic, dues_ms, warm_up = scheduled
    scheduled.wait_until_warm()
    delivered = dispatcher.metric("punctual_delivered_total")
    counted = _counted(dispatcher)
    reads_along = rate in _READ_ALONG
    patience = scale.lateness_seconds + 60
    if reads_along:
        reader = Reader(app.servers, topic)
        seen = reader.read(len(dues_ms), patience=patience)
        reader.close()
    else:
        wait_delivered(delivered + count, dispatcher, patience=patience)
        seen = read_all(app.servers, topic)
    account(seen, dues_ms)
    late = [
        (one.seen_s * 1000 if reads_along else one.appended_ms) - dues_ms[one.number]
        for one in seen
        if one.number >= warm_up
    ]
    grown = [(bound, n - counted.get(bound, 0)) for bound, n in _counted(dispatcher).items()]
    return grown, late


def _counted(dispatcher: Part) -> dict[float, float]:
    """Messages by the upper bound of their lateness in seconds, cumulated."""
    lines = (line for line in dispatcher.metrics() if line.startswith(_HISTOGRAM))
    return {
        float(line.split('le="')[1].split('"')[0]): float(line.rsplit(" ", 1)[1]) for line in lines
    }


def _from_histogram(grown: list[tuple[float, float]], share: float) -> float:
    """A quantile in milliseconds: within its bucket as if spread evenly."""
    wanted = share * grown[-1][1]
    for (low, below), (high, upto) in itertools.pairwise([(0.0, 0.0), *grown]):
        if upto >= wanted:
            within = (wanted - below) / (upto - below) if upto > below else 1.0
            return 1000 * (low if math.isinf(high) else low + within * (high - low))
    return math.nan


def _distribution(late_ms: list[float]) -> list[tuple[float, float]]:
    """Share of the messages that are no later than this."""
    ordered = sorted(late_ms)
    step = max(len(ordered) // 500, 1)
    points = [(max(ms, 0.1), 100 * n / len(ordered)) for n, ms in enumerate(ordered, 1)]
    return [*points[::step], points[-1]]
