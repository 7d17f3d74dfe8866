"""What came out, read committed, held against what must have: independent of the product's code.

The requests of one id stand in one partition, so their order is known. What is not known is when
each was decided, so the check asks whether any course of events explains what came out.
"""

import json
import time
import uuid
from collections import defaultdict
from datetime import datetime

from chaos.fates import Fate, Fire, Told, Verdict
from chaos.load import Request
from chaos.stories import is_over, judge_story
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

SETTLE_SECONDS = 3.0
REMOVED = {"Cancelled", "Replaced", "Unchanged"}


class Ledger:
    """Reads destinations, rejections and history from their beginning."""

    def __init__(
        self, bootstrap_servers: str, *, deliveries: list[str], rejections: str, history: str
    ):
        self.fates: dict[str, Fate] = defaultdict(Fate)
        self._rejections, self._history = rejections, history
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"chaos-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        listed = self._consumer.list_topics(timeout=20).topics
        topics = [*deliveries, rejections, history]
        self._consumer.assign(
            [TopicPartition(t, n, OFFSET_BEGINNING) for t in topics for n in listed[t].partitions]
        )

    def wait(self, requests: list[Request], *, flaky: str, timeout: float) -> None:
        """Until each has a fate, and a moment longer for what must not come."""
        deadline = time.monotonic() + timeout
        last_due = max(request.due_ms for request in requests) / 1000
        unknown = {request.source: request for request in requests if request.delivers}
        while time.monotonic() < deadline and (unknown or time.time() < last_due):
            self._read(0.2)
            unknown = {
                source: request
                for source, request in unknown.items()
                if not _is_settled(request, self.fates[source], flaky)
            }
        quiet = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < quiet:
            self._read(0.1)

    def add_delivered(self, source: str, at_ms: int) -> None:
        """What was read before its topic was deleted."""
        self.fates[source].delivered_ms.append(at_ms)

    def close(self) -> None:
        self._consumer.close()

    def _read(self, seconds: float) -> None:
        for message in self._consumer.consume(1_000, seconds):
            if message.error() is not None:
                continue
            if message.topic() == self._history:
                told = json.loads(message.value())
                fate = self.fates[told["source"]]
                fate.events[told["event"]] += 1
                times = (_ms(told.get(name)) for name in ("at", "scheduledFor"))
                fate.told.append(Told(told["event"], *times))
                continue
            headers = dict(message.headers() or [])
            fate = self.fates[headers["x-scheduler-source"].decode()]
            if message.topic() == self._rejections:
                fate.codes.add(headers["x-scheduler-error-code"].decode())
            else:
                at_ms = message.timestamp()[1]
                fate.delivered_ms.append(at_ms)
                wanted = headers["x-scheduler-scheduled-for"].decode()
                fate.fires.append(Fire(_ms(wanted), at_ms))


def _ms(text: str | None) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0


def _is_settled(request: Request, fate: Fate, flaky: str) -> bool:
    if request.is_of_a_story:
        return is_over(request, fate)
    return is_known(fate, flaky=request.destination == flaky)


def is_known(fate: Fate, *, flaky: bool) -> bool:
    """What was delivered to a topic that is gone is known from history alone."""
    return bool(
        fate.delivered_ms
        or fate.codes
        or REMOVED & fate.events.keys()
        or (flaky and fate.events["Delivered"])
    )


def judge(requests: list[Request], fates: dict[str, Fate], *, flaky: str) -> Verdict:
    """Every request, by itself and among those of its id."""
    verdict = Verdict()
    by_id: dict[str, list[Request]] = defaultdict(list)
    stories: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        if request.is_of_a_story:
            stories[request.id].append(request)
            continue
        fate = fates.get(request.source, Fate())
        about = f"{request} {fate}"
        if request.verb != "CANCEL" and not is_known(fate, flaky=request.destination == flaky):
            verdict.lost.append(about)
        if max(len(fate.delivered_ms), fate.events["Delivered"]) > 1:
            verdict.twice.append(about)
        if any(at_ms < request.due_ms for at_ms in fate.delivered_ms):
            verdict.early.append(about)
        if fate.delivered_ms and (fate.codes or REMOVED & fate.events.keys()):
            verdict.wrong.append(f"delivered and not to be delivered: {about}")
        if request.destination != flaky and fate.codes - {"request-id-in-use"}:
            verdict.wrong.append(f"rejected though nothing was wrong with it: {about}")
        if request.verb == "CANCEL" and (fate.delivered_ms or fate.codes):
            verdict.wrong.append(f"a cancel was delivered or rejected: {about}")
        by_id[request.id or request.source].append(request)
    for same_id in by_id.values():
        ordered = sorted(same_id, key=lambda request: request.offset)
        if not explains(ordered, fates, flaky):
            told = "; ".join(f"{r} {fates.get(r.source, Fate())}" for r in ordered)
            verdict.wrong.append(f"no course of events explains: {told}")
    for story in stories.values():
        judge_story(sorted(story, key=lambda request: request.offset), fates, verdict)
    unknown = fates.keys() - {request.source for request in requests}
    verdict.wrong += [f"out of nowhere: {source} {fates[source]}" for source in sorted(unknown)]
    return verdict


def explains(ordered: list[Request], fates: dict[str, Fate], flaky: str) -> bool:
    """Whether the contract allows what came of the requests of one id."""

    def fired(request: Request) -> bool:
        fate = fates.get(request.source, Fate())
        gone = request.destination == flaky and fate.events["Delivered"]
        return bool(fate.delivered_ms or gone or fate.codes - {"request-id-in-use"})

    def refused(request: Request) -> bool:
        return "request-id-in-use" in fates.get(request.source, Fate()).codes

    standings: set[Request | None] = {None}
    for request in ordered:
        following: set[Request | None] = set()
        for standing in standings:
            if standing is None or fired(standing):  # none, or it fired before this was decided
                following |= _after_none(request, refused(request))
            if standing is not None:  # or it was still there
                following |= _after(
                    standing,
                    request,
                    fired=(fired(standing), fired(request)),
                    refused=refused(request),
                )
        standings = following
    return any(standing is None or fired(standing) for standing in standings)


def _after_none(request: Request, refused: bool) -> set[Request | None]:
    if refused:
        return set()
    return {None} if request.verb == "CANCEL" else {request}


def _after(
    standing: Request, request: Request, *, fired: tuple[bool, bool], refused: bool
) -> set[Request | None]:
    """Where the pending one is still pending when this request is decided."""
    standing_fired, request_fired = fired
    if request.verb == "CANCEL":
        return set() if standing_fired else {None}
    if request.same_as(standing):
        return set() if refused or request_fired else {standing}
    if request.verb == "ADD":
        return {standing} if refused else set()
    return set() if standing_fired or refused else {request}
