"""One of two dispatchers fails under steady traffic: how long its messages wait for the other.

Three ways to fail: killed, stopped (and let go on later), cut off from the broker (and connected
again later). The longest that any message waited is the figure; the session timeout is its limit,
because before it has passed nobody can know.
"""

import time
from collections.abc import Callable
from typing import Final

from support.eventually import eventually
from support.processes import Part

from bench.observing import Reader, Seen, account
from bench.records import PARTITIONS
from bench.report import Report
from bench.scale import Scale
from bench.stack import App, Stack

_SESSION_SECONDS: Final = 6.0
_RATE: Final = 200
_STRIKE_AFTER_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 3.0


def measure(stack: Stack, scale: Scale, report: Report) -> None:
    """Each way to fail, one after the other, with the same two dispatchers."""
    with stack.network() as network, stack.app("takeover") as app:
        near = app.dispatcher("near")
        far = app.dispatcher("far", servers=stack.far_servers)
        faults: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
            ("kill -9", far.kill, far.start),
            ("SIGSTOP", far.freeze, far.thaw),
            ("network cut", network.cut, network.heal),
        ]
        for name, strike, mend in faults:
            longest_s = _longest_wait(app, near, far, scale, name, strike, mend)
            report.add(
                f"take-over after {name} of one of two dispatchers",
                longest_s,
                "s",
                limit=_SESSION_SECONDS,
                aim="≤ session timeout + 2 s",
                met=longest_s <= _SESSION_SECONDS + 2,
            )


def _longest_wait(
    app: App,
    near: Part,
    far: Part,
    scale: Scale,
    name: str,
    strike: Callable[[], object],
    mend: Callable[[], object],
) -> float:
    half = f"serving {PARTITIONS // 2} "
    for part in (near, far):
        eventually(lambda part=part: half in part.readiness()[1], 120, part.readiness)
    count = _RATE * scale.takeover_seconds
    scheduled = app.schedule(
        name.replace(" ", ""),
        near,
        far,
        count=count,
        lead_seconds=scale.lead_seconds(count),
        per_second=_RATE,
    )
    topic, dues_ms, _ = scheduled
    reader = Reader(app.servers, topic)
    seen: list[Seen] = []
    while time.time() < scheduled.start_s + _STRIKE_AFTER_SECONDS:
        seen += reader.poll(0.02)
    strike()
    try:
        seen += reader.read(
            len(dues_ms) - len(seen), patience=scale.takeover_seconds + 90, settle=0
        )
    finally:
        mend()
    # whoever comes back must not repeat anything
    seen += reader.read(0, patience=0, settle=_SETTLE_SECONDS)
    reader.close()
    account(seen, dues_ms)
    return max(one.seen_s - dues_ms[one.number] / 1000 for one in seen)
