"""Many messages due at one instant: deliveries per second, and how long the first one takes."""

import statistics
import time
from dataclasses import dataclass
from typing import Final

from support.processes import Part

from bench import bare_transactions
from bench.observing import EndOffsets, Reader, account, read_all
from bench.records import BenchError
from bench.report import Report
from bench.scale import MILLION, Scale, in_words
from bench.stack import App, Stack

_FIRST_USE: Final = 500
_LITTLE_AT_A_TIME: Final = {"fetch.max.bytes": 65_536, "message.max.bytes": 65_536}
"""So that a reader who waits for the first message does not fetch the others too."""


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


def fire(
    app: App, dispatcher: Part, name: str, count: int, lead_seconds: float, *, warm: bool = True
) -> Burst:
    """Schedule so many for one instant, well ahead of it, and watch them arrive."""
    scheduled = app.schedule(name, dispatcher, count=count, lead_seconds=lead_seconds, warm=warm)
    topic, dues_ms, warm_up = scheduled
    scheduled.wait_until_warm()
    ends = EndOffsets(app.servers, topic)
    near = ends.total() + count * 3 // 4
    delivered = dispatcher.metric("punctual_delivered_total")
    reader = Reader(app.servers, topic, from_end=True, **_LITTLE_AT_A_TIME)
    if time.time() > dues_ms[-1] / 1000:
        raise BenchError(f"{name}: the one who watches was not ready in time")
    patience = 60 + count / 2_000
    first_s = reader.first(patience=patience)
    last_s = ends.follow(
        near=near,
        over=lambda: dispatcher.metric("punctual_delivered_total") >= delivered + count,
        patience=patience,
    )
    reader.close()
    seen = read_all(app.servers, topic)
    account(seen, dues_ms)
    due_ms = dues_ms[-1]
    appended = sorted(one.appended_ms - due_ms for one in seen if one.number >= warm_up)
    return Burst(
        count=count,
        first_ms=first_s * 1000 - due_ms,
        first_appended_ms=appended[0],
        seconds=last_s - due_ms / 1000,
        appended_ms=appended,
    )


def measure(stack: Stack, scale: Scale, report: Report) -> None:
    """Exactly-once, beside a bare transactional producer."""
    with stack.app("burst") as app:
        topic = app.topic("warm-up")
        bare_transactions.warm_up(app.servers, topic, scale.broker_warm_up_seconds)
        dispatcher = app.dispatcher()
        _first_use(app, dispatcher, scale, report)
        for count in scale.bursts:
            name = f"burst of {in_words(count)} due at one instant"
            bare = [_bare(app, f"bare-{count}", count)]
            seen: list[Burst] = []
            for number in range(scale.burst_rounds if count < MILLION else 1):
                lead = scale.lead_seconds(count)
                seen.append(fire(app, dispatcher, f"due-{count}-{number}", count, lead))
                app.wait_until_swept()
                bare.append(_bare(app, f"bare-{count}-{number}", count))
            limit = statistics.median(bare)
            rate = count / statistics.median(burst.seconds for burst in seen)
            first_ms = statistics.median(burst.first_ms for burst in seen)
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
                first_ms,
                "ms",
                aim="≤ 20 ms",
                met=first_ms <= 20,
            )
            written_ms = statistics.median(burst.first_appended_ms for burst in seen)
            report.add(f"{name}: first message written after", written_ms, "ms")
            report.curve("burst", f"{in_words(count)} due at once", _growth(seen[0]))


def _first_use(app: App, dispatcher: Part, scale: Scale, report: Report) -> None:
    """What a destination's very first messages wait for is the broker, whoever writes them."""
    limit = bare_transactions.first_transaction_ms(app.servers, app.topic("bare-first"))
    lead = scale.lead_seconds(_FIRST_USE)
    burst = fire(app, dispatcher, "first-use", _FIRST_USE, lead, warm=False)
    name = "first message ever to a destination, visible after"
    report.add(name, burst.first_ms, "ms", limit=limit)


def _bare(app: App, topic: str, count: int) -> float:
    return bare_transactions.deliveries_per_second(app.servers, app.topic(topic), count)


def _growth(burst: Burst) -> list[tuple[float, float]]:
    """Share of the messages that is there, by seconds from the due instant."""
    step = max(burst.count // 500, 1)
    points = [(ms / 1000, 100 * n / burst.count) for n, ms in enumerate(burst.appended_ms, 1)]
    return [*points[::step], points[-1]]
