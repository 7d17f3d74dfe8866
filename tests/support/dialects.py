"""Requests as producers of other schedulers write them, by other means than ours.

After their documentation: etf1/kafka-message-scheduler and Karafka's scheduled messages by headers,
sky's Kafka Message Scheduler by a value in JSON or, through fastavro, in Avro.
"""

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
from support.kafka import Record

Headers = list[tuple[str, bytes | None]]
SCHEDULE: dict[str, Any] = {
    "type": "record",
    "name": "ScheduleWithHeaders",
    "namespace": "com.sky.kms.domain.Schedule",
    "fields": [
        {"name": "time", "type": "long", "doc": "The time to execute the Schedule."},
        {"name": "topic", "type": "string"},
        {"name": "key", "type": "bytes"},
        {"name": "value", "type": ["null", "bytes"]},
        {"name": "headers", "type": {"type": "map", "values": "bytes"}},
    ],
}
OLD_SCHEDULE = {**SCHEDULE, "name": "ScheduleNoHeaders", "fields": SCHEDULE["fields"][:-1]}


def etf1(
    schedule_id: bytes | None,
    value: bytes | None,
    *,
    epoch: int | str,
    topic: str,
    key: str | None = None,
    headers: Headers | None = None,
) -> Record:
    wanted: Headers = [
        ("scheduler-epoch", str(epoch).encode()),
        ("scheduler-target-topic", topic.encode()),
    ]
    if key is not None:
        wanted.append(("scheduler-target-key", key.encode()))
    return Record(value, key=schedule_id, headers=[*wanted, *(headers or [])])


def karafka(
    schedule_id: bytes,
    value: bytes | None,
    *,
    epoch: int | str,
    topic: str,
    key: str | None = None,
    partition: int | str | None = None,
    partition_key: str | None = None,
    headers: Headers | None = None,
) -> Record:
    wanted: Headers = [
        *(headers or []),
        ("schedule_schema_version", b"1.0.0"),
        ("schedule_target_epoch", str(epoch).encode()),
        ("schedule_source_type", b"schedule"),
        ("schedule_target_topic", topic.encode()),
    ]
    if partition is not None:
        wanted.append(("schedule_target_partition", str(partition).encode()))
    if key is not None:
        wanted.append(("schedule_target_key", key.encode()))
    if partition_key is not None:
        wanted.append(("schedule_target_partition_key", partition_key.encode()))
    return Record(value, key=schedule_id, headers=wanted)


def karafka_cancel(schedule_id: bytes) -> Record:
    headers: Headers = [
        ("schedule_schema_version", b"1.0.0"),
        ("schedule_source_type", b"cancel"),
    ]
    return Record(None, key=schedule_id, headers=headers)


def kms_json(
    schedule_id: bytes,
    value: bytes | None,
    *,
    time_ms: int,
    topic: str,
    key: bytes,
    headers: Mapping[str, bytes] | None = None,
) -> Record:
    schedule: dict[str, object] = {
        "time": time_ms,
        "topic": topic,
        "key": base64.b64encode(key).decode(),
        "value": None if value is None else base64.b64encode(value).decode(),
    }
    if headers is not None:
        schedule["headers"] = {n: base64.b64encode(v).decode() for n, v in headers.items()}
    return Record(json.dumps(schedule).encode(), key=schedule_id)


def kms_avro(
    schedule_id: bytes,
    value: bytes | None,
    *,
    time_ms: int,
    topic: str,
    key: bytes,
    headers: Mapping[str, bytes] | None = None,
) -> Record:
    """Without headers in the older form, which has no field for them."""
    schedule: dict[str, object] = {"time": time_ms, "topic": topic, "key": key, "value": value}
    if headers is not None:
        schedule["headers"] = dict(headers)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, OLD_SCHEDULE if headers is None else SCHEDULE, schedule)
    return Record(out.getvalue(), key=schedule_id)
