"""`punctual watch`: follows rejections, and the history where there is one."""

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import click
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from punctual_worker.commands.options import CONNECTION, with_settings
from punctual_worker.contract import headers as names
from punctual_worker.contract.times import format_ms
from punctual_worker.errors import PunctualError
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.local.signals import stop_on_signals
from punctual_worker.settings import Settings


@click.command()
@with_settings(*CONNECTION)
@click.option(
    "--topic", "destinations", multiple=True, help="Also what arrives in this topic; repeatable."
)
@click.option("--from-beginning", is_flag=True, help="Also what is there already.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
def watch(
    settings: Settings,
    *,
    destinations: tuple[str, ...],
    from_beginning: bool,
    count: int | None,
    as_json: bool,
) -> None:
    """Show rejected requests as they come (and events, if the app keeps a history)."""
    stopped = stop_on_signals()
    start = OFFSET_BEGINNING if from_beginning else OFFSET_END
    kinds = {settings.topics.rejections: _rejection, settings.topics.history: _history}
    messages = _follow(settings, destinations, start=start, stopped=stopped)
    for seen, message in enumerate(messages, start=1):
        event = kinds.get(message.topic() or "", _arrival)(message)
        click.echo(json.dumps(event, ensure_ascii=False) if as_json else _readable(event))
        if seen == count:
            return


def _follow(
    settings: Settings, destinations: tuple[str, ...], *, start: int, stopped: threading.Event
) -> Iterator[Message]:
    """Committed records of all these topics; no group, so nobody else's position is touched."""
    config = librdkafka_config(
        settings,
        group_id=f"{settings.app_id}-watch",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer = Consumer({**config, "log_level": 2})
    try:
        found = consumer.list_topics(timeout=15).topics
        for topic, hint in (
            (settings.topics.rejections, "check the app id"),
            *((name, "check --topic") for name in destinations),
        ):
            if topic not in found:
                raise PunctualError(
                    f"There is no topic {topic} on Kafka at {settings.bootstrap_servers}: {hint}."
                )
        wanted = (settings.topics.rejections, settings.topics.history, *destinations)
        topics = [topic for topic in dict.fromkeys(wanted) if topic in found]
        consumer.assign(
            [TopicPartition(t, number, start) for t in topics for number in found[t].partitions]
        )
        while not stopped.is_set():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            yield message
    except KafkaException as error:
        fault: KafkaError = error.args[0]
        raise PunctualError(
            f"Kafka at {settings.bootstrap_servers} cannot be followed: {fault.str()}."
        ) from error
    finally:
        consumer.close()


def _rejection(message: Message) -> dict[str, Any]:
    headers: list[tuple[str, Any]] = list(message.headers() or [])  # type: ignore[arg-type] # a list
    last = dict(headers)
    return {
        "event": "Rejected",
        "at": _text(last.get(names.REJECTED_AT)) or format_ms(message.timestamp()[1]),
        "id": _text(last.get(names.REQUEST_ID)),
        "codes": [code for code in str(_text(last.get(names.ERROR_CODE)) or "").split(",") if code],
        "reason": _text(last.get(names.ERROR)),
        "source": _text(last.get(names.SOURCE)),
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [[name, _text(value)] for name, value in headers],
        "rejection": f"{message.topic()}/{message.partition()}/{message.offset()}",
    }


def _arrival(message: Message) -> dict[str, Any]:
    headers: list[tuple[str, Any]] = list(message.headers() or [])  # type: ignore[arg-type] # a list
    last = dict(headers)
    event = {
        "event": "Arrived",
        "at": format_ms(message.timestamp()[1]),
        "id": _text(last.get(names.REQUEST_ID)),
        "key": _text(message.key()),
        "value": _text(message.value()),
        "destination": message.topic(),
        "scheduledFor": _text(last.get(names.SCHEDULED_FOR)),
        "source": _text(last.get(names.SOURCE)),
        "headers": [[name, _text(value)] for name, value in headers],
    }
    return {name: content for name, content in event.items() if content is not None}


def _history(message: Message) -> dict[str, Any]:
    try:
        event = json.loads(message.value() or b"")
    except ValueError:
        event = None
    if isinstance(event, dict):
        return event
    return {"event": "Unreadable", "id": _text(message.key()), "reason": _text(message.value())}


def _readable(event: dict[str, Any]) -> str:
    words = [str(event.get("at", "")), f"{event.get('event', '')!s:<12}"]
    if event.get("id") is not None:
        words.append(f"id {event['id']}")
    if event.get("key") is not None:
        words.append(f"key {event['key']}")
    if event.get("destination"):
        words.append(f"to {event['destination']}")
    if event.get("event") == "Arrived" and event.get("scheduledFor"):
        words.append(f"due {event['scheduledFor']}")
    if event.get("latenessMs") is not None:
        words.append(f"{event['latenessMs']} ms late")
    if event.get("source"):
        words.append(f"from {event['source']}")
    if event.get("codes"):
        words.append(f"[{', '.join(event['codes'])}]")
    if event.get("reason"):
        words.append(str(event["reason"]))
    if event.get("event") == "Arrived":
        words.append(f"value {event.get('value')}")
    return " ".join(words)


def _text(raw: bytes | str | None) -> str | dict[str, str] | None:
    """Text where it is text; any other bytes in base64, marked as such."""
    if raw is None or isinstance(raw, str):
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}
