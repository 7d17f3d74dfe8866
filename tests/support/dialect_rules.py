"""What other schedulers' formats say about a record, in plain Python: the oracle of their tests.

Written from their documentation and the contract's words, by other means than the Spark expressions
and without sharing code with them. JSON and Avro are read by libraries, strictly.
"""

import base64
import binascii
import io
import json
from dataclasses import dataclass, field

import fastavro
from punctual_worker.contract.dialects import Dialect
from support.dialects import OLD_SCHEDULE, SCHEDULE
from support.request_rules import BROKERS, DIGITS, TOPIC_CHARACTERS, Request, World

Headers = list[tuple[str, bytes | None]]
LAST_MS = 253_402_300_799_999


@dataclass
class Asked:
    """A delivery, as the record asks for it: what was given, and what is to come out."""

    to: bytes | None
    time: bytes | None
    per_second: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: bytes | None = None
    partition_key: bytes | None = None


@dataclass
class Ruling:
    codes: set[str] = field(default_factory=set)
    due_ms: int = 0
    asked: Asked | None = None
    """None for a cancel."""
    unclear: bool = False
    """Whether libraries may differ: a number is written with more bytes than it needs."""


def rule(dialect: Dialect, request: Request, world: World) -> Ruling:
    ruling = Ruling(_id_codes(request.key))
    kind = {
        Dialect.MESSAGE_SCHEDULER: _message_scheduler,
        Dialect.KARAFKA: _karafka,
        Dialect.KMS_JSON: _kms,
        Dialect.KMS_AVRO: _kms,
    }[dialect]
    verb, asked = kind(request, dialect)
    if verb == "?":
        ruling.codes.add("unknown-action")
    ruling.unclear = dialect is Dialect.KMS_AVRO and not _is_canonical(request.value, asked)
    if verb == "R" and asked is not None:
        ruling.asked = asked
        _judge(asked, ruling, request, world)
    return ruling


def _id_codes(key: bytes | None) -> set[str]:
    if key is None:
        return {"missing-request-id"}
    try:
        key.decode()
    except UnicodeDecodeError:
        return {"not-utf8"}
    return set() if 1 <= len(key) <= 255 else {"invalid-request-id"}


def _judge(asked: Asked, ruling: Ruling, request: Request, world: World) -> None:
    codes = ruling.codes
    topic = None if asked.to is None else asked.to.decode("utf-8", "replace")
    if topic is None:
        codes.add("missing-deliver-to")
    elif not 1 <= len(topic) <= 249 or set(topic) - TOPIC_CHARACTERS or topic in (".", ".."):
        codes.add("invalid-deliver-to")
    elif topic in world.own_topics | BROKERS:
        codes.add("destination-not-allowed")
    digits = None if asked.time is None else asked.time.decode("utf-8", "replace")
    most = 14 if asked.per_second == 1000 else 17
    if digits is None:
        codes.add("missing-deliver-at")
    elif digits[:1] == "-" and asked.per_second == 1 and 1 <= len(digits) - 1 <= 19:
        if set(digits[1:]) - DIGITS:
            codes.add("invalid-deliver-at")
    elif not 1 <= len(digits) <= most or set(digits) - DIGITS:
        codes.add("invalid-deliver-at")
    else:
        ruling.due_ms = int(digits) * asked.per_second
        ahead = ruling.due_ms - request.timestamp_ms
        if ahead > world.horizon_days * 86_400_000 or ruling.due_ms > LAST_MS:
            codes.add("deliver-at-too-far")
    if asked.partition is not None:
        number = asked.partition.decode("utf-8", "replace")
        if not 1 <= len(number) <= 10 or set(number) - DIGITS or int(number) >= 2**31:
            codes.add("invalid-deliver-partition")
    if any(name.startswith("x-scheduler-") for name, _ in asked.headers):
        codes.add("unknown-header")


def _message_scheduler(request: Request, _: Dialect) -> tuple[str, Asked | None]:
    if request.value is None:
        return "C", None
    first = dict(reversed(request.headers))
    origin: Headers = [
        ("scheduler-timestamp", str(request.timestamp_ms // 1000).encode()),
        ("scheduler-key", request.key),
        ("scheduler-topic", b"old-schedules"),
    ]
    return "R", Asked(
        first.get("scheduler-target-topic"),
        first.get("scheduler-epoch"),
        1000,
        first.get("scheduler-target-key"),
        request.value,
        [*request.headers, *origin],
    )


def _karafka(request: Request, _: Dialect) -> tuple[str, Asked | None]:
    found = dict(request.headers)
    version, kind = found.get("schedule_schema_version"), found.get("schedule_source_type")
    if version is None and kind is None and request.value is None:
        return "C", None
    if version != b"1.0.0" or kind not in (b"schedule", b"cancel", b"tombstone"):
        return "?", None
    if kind != b"schedule":
        return "C", None
    origin: Headers = [
        ("schedule_source_topic", b"old-schedules"),
        ("schedule_source_partition", str(request.partition).encode()),
        ("schedule_source_offset", str(request.offset).encode()),
        ("schedule_source_key", request.key),
    ]
    return "R", Asked(
        found.get("schedule_target_topic"),
        found.get("schedule_target_epoch"),
        1000,
        found.get("schedule_target_key"),
        request.value,
        [*request.headers, *origin],
        found.get("schedule_target_partition"),
        found.get("schedule_target_partition_key"),
    )


def _kms(request: Request, dialect: Dialect) -> tuple[str, Asked | None]:
    if request.value is None:
        return "C", None
    read = _read_json if dialect is Dialect.KMS_JSON else _read_avro
    asked = read(request.value)
    return ("?", None) if asked is None else ("R", asked)


def _read_json(value: bytes) -> Asked | None:
    try:
        schedule = json.loads(value.decode())
        if type(schedule["time"]) is not int or not isinstance(schedule["topic"], str):
            return None
        payload, headers = schedule.get("value"), schedule.get("headers") or {}
        return Asked(
            schedule["topic"].encode(),
            str(schedule["time"]).encode(),
            1,
            base64.b64decode(schedule["key"], validate=True),
            None if payload is None else base64.b64decode(payload, validate=True),
            [(name, base64.b64decode(text, validate=True)) for name, text in headers.items()],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        return None


def _is_canonical(value: bytes | None, asked: Asked | None) -> bool:
    if value is None or asked is None:
        return True
    schedule = {
        "time": int(asked.time or b"0"),
        "topic": (asked.to or b"").decode(),
        "key": asked.key,
        "value": asked.value,
        "headers": dict(asked.headers),
    }
    encoded = [io.BytesIO(), io.BytesIO()]
    for out, schema in zip(encoded, (SCHEDULE, OLD_SCHEDULE), strict=True):
        fastavro.schemaless_writer(out, schema, schedule)
    return any(value.startswith(out.getvalue()) for out in encoded)


def _read_avro(value: bytes) -> Asked | None:
    for schema in (SCHEDULE, OLD_SCHEDULE):
        source = io.BytesIO(value)
        try:
            schedule = fastavro.schemaless_reader(
                source, schema, None, handle_unicode_errors="replace"
            )
        except Exception:
            continue
        if schema is OLD_SCHEDULE and source.read():
            continue
        assert isinstance(schedule, dict)
        return Asked(
            schedule["topic"].encode(),
            str(schedule["time"]).encode(),
            1,
            schedule["key"],
            schedule["value"],
            list(schedule.get("headers", {}).items()),
        )
    return None
