"""Many messages due at one instant: deliveries per second, and how long the first one takes."""

from dataclasses import dataclass

from support.processes import Part

from bench import bare_transactions
from bench.observing import EndOffsets, account, read_all
from bench.report import Report
from bench.scale import Scale, in_words
from bench.stack import App, Stack


@dataclass(frozen=True)
class Burst:
    """What was seen of one."""

    count: int
    first_ms: float
    """From the due instant until a reader of committed messages can have the first."""
    first_appended_ms: float
    seconds: float
    """From the due instant until a reader of committed messages can have the last."""
    appended_ms: list[int]
    """When each was written, from the due instant on."""


def fire(app: App, dispatcher: Part, name: str, count: int, lead_seconds: float) -> Burst:
    """Schedule so many for one instant, well ahead of it, and watch them arrive."""
    topic, dues_ms = app.schedule(name, dispatcher, count=count, lead_seconds=lead_seconds)
    due_ms = dues_ms[0]
    due_s = due_ms / 1000
    delivered = dispatcher.metric("punctual_delivered_total")
    changes = EndOffsets(app.servers, topic).follow(
        from_s=due_s - 0.02,
        over=lambda: dispatcher.metric("punctual_delivered_total") >= delivered + count,
        patience=60 + count / 2_000,
    )
    seen = read_all(app.servers, topic)
    account(seen, dues_ms)
    appended = sorted(one.appended_ms - due_ms for one in seen)
    return Burst(
        count=count,
        first_ms=(changes[0].at_s - due_s) * 1000,
        first_appended_ms=appended[0],
        seconds=changes[-1].at_s - due_s,
        appended_ms=appended,
    )


def measure(stack: Stack, scale: Scale, report: Report) -> None:
    """Exactly-once, beside a bare transactional producer."""
    with stack.app("burst") as app:
        # a broker that has just started is slow, which would make the limit look low
        warm_up = app.topic("warm-up")
        bare_transactions.deliveries_per_second(app.servers, warm_up, scale.bare_warm_up)
        dispatcher = app.dispatcher()
        for count in scale.bursts:
            name = f"burst of {in_words(count)} due at one instant"
            before = _bare(app, f"bare-before-{count}", count)
            burst = fire(app, dispatcher, f"due-{count}", count, scale.lead_seconds(count))
            app.wait_until_swept()
            after = _bare(app, f"bare-after-{count}", count)
            limit = max(before, after)
            rate = count / burst.seconds
            report.add(
                name,
                rate,
                "deliveries/s",
                limit=limit,
                aim="≥ 0.7 of the limit",
                met=rate >= 0.7 * limit,
            )
            report.add(
                f"{name}: first message visible after",
                burst.first_ms,
                "ms",
                aim="≤ 20 ms",
                met=burst.first_ms <= 20,
            )
            report.add(f"{name}: first message written after", burst.first_appended_ms, "ms")
            report.curve("burst", f"{in_words(count)} due at once", _growth(burst))


def _bare(app: App, topic: str, count: int) -> float:
    return bare_transactions.deliveries_per_second(app.servers, app.topic(topic), count)


def _growth(burst: Burst) -> list[tuple[float, float]]:
    """Share of the messages that is there, by seconds from the due instant."""
    step = max(burst.count // 500, 1)
    points = [(ms / 1000, 100 * n / burst.count) for n, ms in enumerate(burst.appended_ms, 1)]
    return [*points[::step], points[-1]]
