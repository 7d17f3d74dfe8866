"""`punctual demo`: the stack on this machine, a few requests, and what becomes of them.

It is also the shortest check that everything works: `--once` succeeds only if what should arrive
did, exactly once, and what should not did not.
"""

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from punctual_worker.client import Client, Request, cancel_request, delivery_request
from punctual_worker.contract import headers as names
from punctual_worker.contract.times import to_ms
from punctual_worker.contract.topics import TopicSpec
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.local.ports import claim_port
from punctual_worker.local.screen import Screen
from punctual_worker.local.stack import Stack, run_stack
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin, TopicsError
from punctual_worker.topics.wanted import wanted_topics

_APP_ID: Final = "demo"
_DESTINATION: Final = "demo-reminders"
_BROKER_PORT: Final = 9092
_PATIENCE_SECONDS: Final = 30.0
_LAST_DUE_SECONDS: Final = 5.0
"""When «replaced» and «cancelled» would come. Not sooner: an intake that has just started needs a
moment for its first requests, and what is due before it is replaced is rightly delivered."""
_SETTLE_SECONDS: Final = 2.0
"""How long we look for what should not come, after it would have and all else has."""


@dataclass(frozen=True)
class Step:
    """One request, and the words for it."""

    words: str
    request: Request


@dataclass
class Seen:
    """What came out, with the milliseconds each was late."""

    delivered: dict[str, list[int]] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)


def run_demo(settings: Settings, *, once: bool, stopped: threading.Event, screen: Screen) -> int:
    """Start the stack, show what it does, stay up (or end, with `once`); the exit status."""
    settings = settings.model_copy(
        update={"app_id": _APP_ID, "http_port": _preferred_port(settings.http_port)}
    )
    broker = EmbeddedBroker(settings.data_dir, _preferred_port(_BROKER_PORT))
    stack = Stack(settings, broker=broker, topics=wanted_topics(settings))

    def play() -> list[str]:
        try:
            faults = _play(stack.settings, screen.say)
        except BaseException:
            stopped.set()
            raise
        for fault in faults:
            screen.say(f"WRONG: {fault}")
        if not faults:
            screen.say("all that should arrive did, exactly once; nothing else did")
        if once:
            stopped.set()
        else:
            _say_what_next(stack, screen)
        return faults

    # in a thread of its own, so that what dies meanwhile is restarted as it would be without us
    with ThreadPoolExecutor(max_workers=1) as player:
        played: list[Future[list[str]]] = []

        def on_ready() -> None:
            screen.say("ready")
            played.append(player.submit(play))

        run_stack(stack, stopped, say=screen.say, progress=screen.progress, on_ready=on_ready)
    return 0 if played and not played[0].result() else 1


def demo_steps(run: str, now: datetime) -> list[Step]:
    """The requests of one run; all with one key, so that they are taken in in this order."""
    key = run.encode()

    def deliver(text: str, delay: str, request_id: str) -> Request:
        value = f"{text} [{run}]".encode()
        return delivery_request(_DESTINATION, value, delay=delay, request_id=request_id, key=key)

    replacement = delivery_request(
        _DESTINATION,
        f"replacement [{run}]".encode(),
        action="REPLACE",
        deliver_at=now + timedelta(seconds=4),
        request_id=f"{run}-r",
        key=key,
    )
    bad = delivery_request("not a topic!", b"bad", delay="1s", request_id=f"{run}-bad", key=key)
    return [
        Step("deliver «at once» now", deliver("at once", "0s", f"{run}-now")),
        Step("deliver «in three seconds» in 3 s", deliver("in three seconds", "3s", f"{run}-3")),
        Step("deliver «replaced» in 5 s", deliver("replaced", "5s", f"{run}-r")),
        Step("replace it by «replacement» in 4 s", replacement),
        Step("deliver «cancelled» in 5 s", deliver("cancelled", "5s", f"{run}-c")),
        Step("cancel it", cancel_request(f"{run}-c", key=key)),
        Step("deliver to a topic with an illegal name", bad),
    ]


def judge(run: str, seen: Seen) -> list[str]:
    """What went wrong, in sentences; nothing if all is well."""
    wanted = [f"{text} [{run}]" for text in ("at once", "in three seconds", "replacement")]
    faults = [f"«{text}» did not arrive" for text in wanted if text not in seen.delivered]
    faults += [
        f"«{text}» arrived {len(times)} times"
        for text, times in seen.delivered.items()
        if len(times) > 1
    ]
    faults += [f"«{text}» arrived" for text in seen.delivered if text not in wanted]
    faults += [
        f"«{text}» arrived {-min(times)} ms too early"
        for text, times in seen.delivered.items()
        if min(times) < 0
    ]
    if seen.rejected != ["invalid-deliver-to"]:
        faults.append(f"the bad request was answered with {seen.rejected or 'nothing'}")
    return faults


def _play(settings: Settings, say: Callable[[str], None]) -> list[str]:
    destination = TopicSpec(_DESTINATION, partitions=2, replication_factor=1)
    (made,) = TopicAdmin(librdkafka_config(settings)).ensure([destination])
    if made.error is not None:
        raise TopicsError(f"Topic {_DESTINATION}: {made.error}.")
    run = uuid.uuid4().hex[:6]
    seen = Seen()
    consumer = _consumer(settings)
    try:
        with Client(settings) as client:
            for step in demo_steps(run, datetime.now(UTC)):
                placed = client.send(step.request)
                say(f"  asked: {step.words:<42} {placed}")
        _watch(consumer, seen, run=run, say=say)
    finally:
        consumer.close()
    return judge(run, seen)


def _consumer(settings: Settings) -> Consumer:
    """At the end of both topics, fixed before the first request is sent."""
    config = librdkafka_config(
        settings,
        group_id="demo-viewer",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_wait_max_ms=10,
    )
    consumer = Consumer({**config, "log_level": 2})
    found = consumer.list_topics(timeout=10).topics
    places = [
        TopicPartition(topic, number, OFFSET_END)
        for topic in (_DESTINATION, settings.topics.rejections)
        for number in found[topic].partitions
    ]
    for place in places:
        place.offset = _end(consumer, place)
    consumer.assign(places)
    return consumer


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """The partition's end; a new topic's leader may need a moment to know that it is one."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            ends: tuple[int, int] = consumer.get_watermark_offsets(place, timeout=10)
            return ends[1]
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _watch(consumer: Consumer, seen: Seen, *, run: str, say: Callable[[str], None]) -> None:
    """Until all has come and a little longer; the judge decides what is missing or too much."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    unwanted_due = time.monotonic() + _LAST_DUE_SECONDS
    quiet_until: float | None = None
    while time.monotonic() < (quiet_until or deadline):
        message = consumer.poll(0.1)
        if message is not None:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            say(_note(message, seen, run=run))
        complete = len(seen.delivered) >= 3 and bool(seen.rejected)
        if complete and quiet_until is None:
            quiet_until = max(time.monotonic(), unwanted_due) + _SETTLE_SECONDS


def _note(message: Message, seen: Seen, *, run: str) -> str:
    """Count what belongs to this run; what an earlier one left behind is shown, not judged."""
    own = message.key() == run.encode()
    mark = "" if own else " (of an earlier run)"
    arrived_ms = time.time_ns() // 1_000_000
    headers = _text_headers(message)
    text = (message.value() or b"").decode(errors="replace")
    if message.topic() != _DESTINATION:
        code = headers.get(names.ERROR_CODE, "")
        if own:
            seen.rejected.append(code)
        return f"  rejected: [{code}] {headers.get(names.ERROR, '')}{mark}"
    scheduled_for = headers.get(names.SCHEDULED_FOR, "")
    late_ms = arrived_ms - to_ms(datetime.fromisoformat(scheduled_for))
    if own:
        seen.delivered.setdefault(text, []).append(late_ms)
    return f"  arrived: {text:<30} {late_ms} ms after its time ({scheduled_for}){mark}"


def _text_headers(message: Message) -> dict[str, str]:
    return {
        name: value.decode(errors="replace") if isinstance(value, bytes) else value or ""
        for name, value in dict(message.headers() or []).items()
    }


def _say_what_next(stack: Stack, screen: Screen) -> None:
    servers, data_dir = stack.settings.bootstrap_servers, stack.settings.data_dir
    screen.say(f"console on {stack.console_url}")
    screen.say(f"health and metrics of all parts on {stack.url}; data in {data_dir}")
    screen.say("it stays up until Ctrl-C; in another terminal, for example:")
    screen.say(f"  export PUNCTUAL_BOOTSTRAP_SERVERS={servers} PUNCTUAL_APP_ID={_APP_ID}")
    screen.say(f"  .venv/bin/punctual schedule --to {_DESTINATION} --in 10s --id r1 --key k hello")
    screen.say("  .venv/bin/punctual watch --from-beginning")


def _preferred_port(port: int) -> int:
    """The usual port if nobody has it, else any: a demo should not fail for that."""
    try:
        return claim_port("127.0.0.1", port)
    except OSError:
        return 0
