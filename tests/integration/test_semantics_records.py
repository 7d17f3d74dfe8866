"""Delivered and rejected records as the contract has them, byte by byte and code by code."""

import os

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from support.scheduler import RunningScheduler

FAR = "PT1H"


# Bytes


EVERY_BYTE = bytes(range(256)) + os.urandom(2000)
UNIQUE_HEADERS = [
    ("z first", b"1"),
    ("binary", EVERY_BYTE),
    ("null", None),
    ("empty", b""),
    ("ü ✓", b"\0"),
    ("X-Scheduler-Deliver-To", b"not ours: names are lower case"),
]


@pytest.mark.parametrize(
    "user_headers",
    [
        [],
        UNIQUE_HEADERS,
        [("dup", b"1"), *UNIQUE_HEADERS, ("dup", b"2"), ("dup", b"1")],
    ],
    ids=["none", "unique", "repeated"],
)
def test_what_is_delivered_is_what_was_sent_byte_for_byte(
    scheduler: RunningScheduler, out: str, user_headers: list[tuple[str, bytes | None]]
) -> None:
    every_byte = EVERY_BYTE
    request = scheduler.request(
        {"deliver-to": out, "delay": "10ms", "request-id": f"{out}-ü|✓"},
        key=every_byte[::-1],
        value=every_byte,
        headers=user_headers,
    )
    (delivered,) = scheduler.delivered(out, 1)
    assert (delivered.key, delivered.value) == (every_byte[::-1], every_byte)
    assert delivered.headers[: len(user_headers)] == user_headers
    trace = delivered.headers[len(user_headers) :]
    assert [name for name, _ in trace] == [
        "x-scheduler-request-id",
        "x-scheduler-scheduled-for",
        "x-scheduler-source",
    ]
    assert trace[0][1] == f"{out}-ü|✓".encode()
    assert trace[2][1] == f"{request.topic}/{request.partition}/{request.offset}".encode()


@pytest.mark.parametrize("value", [None, b"", b"\0"])
def test_null_and_empty_values_stay_what_they_are(
    scheduler: RunningScheduler, out: str, value: bytes | None
) -> None:
    scheduler.request({"deliver-to": out, "delay": "0s"}, value=value)
    (delivered,) = scheduler.delivered(out, 1)
    assert delivered.value == value


def test_the_partition_is_the_one_a_java_producer_would_have_chosen(
    scheduler: RunningScheduler, app_id: str
) -> None:
    out = scheduler.new_destination(app_id, partitions=7)
    keys = [b"%d" % number for number in range(40)]
    for key in keys:
        scheduler.request({"deliver-to": out, "delay": "0s"}, key=key)
    for record in scheduler.delivered(out, len(keys)):
        assert record.partition == _murmur2_partition(record.key or b"", 7)


def test_a_partition_that_was_asked_for_is_used(scheduler: RunningScheduler, out: str) -> None:
    for partition in range(3):
        scheduler.request({"deliver-to": out, "delay": "0s", "deliver-partition": str(partition)})
    assert [r.partition for r in scheduler.delivered(out, 3)] == [0, 1, 2]


# Rejections

ADD = {"deliver-to": "somewhere", "delay": FAR}
CODES: list[tuple[str, dict[str, str | bytes | None]]] = [
    ("unknown-action", {**ADD, "action": "POSTPONE"}),
    ("unknown-header", {**ADD, "expire-at": "2030-01-01T00:00:00Z"}),
    ("missing-deliver-to", {"delay": FAR}),
    ("missing-deliver-at", {"deliver-to": "somewhere"}),
    ("missing-request-id", {**ADD, "action": "REPLACE"}),
    ("missing-request-id", {"action": "CANCEL"}),
    ("invalid-deliver-at", {"deliver-to": "somewhere", "deliver-at": "tomorrow"}),
    ("invalid-delay", {"deliver-to": "somewhere", "delay": "-5s"}),
    ("invalid-cron", {"deliver-to": "somewhere", "cron": "every now and then"}),
    ("invalid-timezone", {"deliver-to": "somewhere", "cron": "0 9 * * *", "timezone": "?"}),
    ("invalid-deliver-to", {**ADD, "deliver-to": "not a topic/name"}),
    ("invalid-deliver-partition", {**ADD, "deliver-partition": "first"}),
    ("invalid-expires-at", {**ADD, "expires-at": "never"}),
    ("invalid-spread", {**ADD, "spread": "wide"}),
    ("invalid-request-id", {**ADD, "request-id": "x" * 256}),
    ("conflicting-times", {**ADD, "deliver-at": "2030-01-01T00:00:00Z"}),
    ("deliver-at-too-far", {"deliver-to": "somewhere", "deliver-at": "9000-01-01T00:00:00Z"}),
    ("destination-not-allowed", {**ADD, "deliver-to": "semantics-schedule-requests"}),
    ("not-utf8", {**ADD, "request-id": b"\xff\xfe"}),
]


@pytest.mark.parametrize(("code", "fields"), CODES, ids=[code for code, _ in CODES])
def test_a_faulty_request_is_rejected_as_it_was_with_its_code(
    scheduler: RunningScheduler, code: str, fields: dict[str, str | bytes | None]
) -> None:
    request = scheduler.request(fields, value=b"\x00payload\xff", headers=[("mine", b"\xfe")])
    rejection = scheduler.rejection_of(request)
    assert (rejection.header("x-scheduler-error-code") or b"").decode().split(",") == [code]
    assert (rejection.key, rejection.value) == (request.key, request.value)
    assert rejection.headers[: len(request.headers)] == request.headers
    assert [name for name, _ in rejection.headers[len(request.headers) :]] == [
        "x-scheduler-error-code",
        "x-scheduler-error",
        "x-scheduler-source",
        "x-scheduler-rejected-at",
    ]
    assert len(rejection.header("x-scheduler-error") or b"") > 20


def test_what_would_not_fit_as_an_action_is_rejected_as_too_large(
    scheduler: RunningScheduler,
) -> None:
    _set_max_bytes(scheduler, scheduler.topics.requests, 4_000_000)  # more than intake was told
    request = scheduler.request(ADD, value=b"x" * 1_500_000)
    rejection = scheduler.rejection_of(request)
    assert rejection.header("x-scheduler-error-code") == b"too-large"
    # the rejections topic has no room for it either: the sentence says where it still stands
    assert rejection.value == b""
    assert request.topic.encode() in (rejection.header("x-scheduler-error") or b"")


def test_several_faults_are_all_told(scheduler: RunningScheduler) -> None:
    request = scheduler.request({"deliver-at": "soon", "expires-at": "later", "request-id": ""})
    codes = scheduler.rejection_of(request).header("x-scheduler-error-code") or b""
    assert {"missing-deliver-to", "invalid-deliver-at", "invalid-expires-at"} <= set(
        codes.decode().split(",")
    )


def test_an_unknown_destination_is_rejected_by_the_dispatcher(
    scheduler: RunningScheduler, out: str
) -> None:
    unknown = scheduler.request({"deliver-to": f"{out}-nowhere", "delay": "0s"})
    known = scheduler.request({"deliver-to": out, "delay": "0s"})
    assert known.offset >= 0
    assert len(scheduler.delivered(out, 1)) == 1
    rejection = scheduler.rejection_of(unknown)
    assert rejection.header("x-scheduler-error-code") == b"unknown-destination"
    assert rejection.headers[: len(unknown.headers)] == unknown.headers


def test_a_partition_the_destination_does_not_have_is_rejected(
    scheduler: RunningScheduler, out: str
) -> None:
    request = scheduler.request({"deliver-to": out, "delay": "0s", "deliver-partition": "99"})
    rejection = scheduler.rejection_of(request)
    assert rejection.header("x-scheduler-error-code") == b"delivery-failed"
    assert b"99" in (rejection.header("x-scheduler-error") or b"")


def test_a_repaired_rejection_is_accepted_as_it_is(scheduler: RunningScheduler, out: str) -> None:
    request = scheduler.request({"deliver-to": out, "deliver-at": "soon"}, headers=[("h", b"1")])
    rejection = scheduler.rejection_of(request)
    repaired = [
        (name, b"2020-01-01T00:00:00Z" if name == "x-scheduler-deliver-at" else content)
        for name, content in rejection.headers
    ]
    scheduler.request(key=rejection.key, value=rejection.value, headers=repaired)
    (delivered,) = scheduler.delivered(out, 1)
    assert delivered.headers[0] == ("h", b"1")
    assert delivered.header("x-scheduler-error") is None


def test_a_delivered_record_can_be_scheduled_again_as_it_is(
    scheduler: RunningScheduler, out: str
) -> None:
    scheduler.request({"deliver-to": out, "delay": "0s", "request-id": f"{out}-r"})
    (delivered,) = scheduler.delivered(out, 1)
    scheduler.request({"deliver-to": out, "delay": "0s"}, value=b"retry", headers=delivered.headers)
    records = scheduler.delivered(out, 2)
    assert {r.value for r in records} == {b"value", b"retry"}


def test_the_offsets_of_the_intake_group_can_be_seen(scheduler: RunningScheduler) -> None:
    consumer = Consumer(
        {"bootstrap.servers": scheduler.bootstrap_servers, "group.id": "semantics-intake"}
    )
    try:
        places = [TopicPartition(scheduler.topics.requests, number) for number in range(2)]
        assert all(place.error is None for place in consumer.committed(places, timeout=10))
    finally:
        consumer.close()


def _set_max_bytes(scheduler: RunningScheduler, topic: str, limit: int) -> None:
    admin = AdminClient({"bootstrap.servers": scheduler.bootstrap_servers})
    entry = ConfigEntry(
        "max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)


def _murmur2_partition(key: bytes, partitions: int) -> int:
    """Kafka's default partitioner, written from its description."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) - len(key) % 4
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return ((h ^ (h >> 15)) & 0x7FFFFFFF) % partitions


def test_our_own_murmur2_agrees_with_kafkas_published_values() -> None:
    # from the test of org.apache.kafka.common.utils.Utils.murmur2, taken modulo 2^31
    assert _murmur2_partition(b"21", 1 << 31) == (-973932308) & 0x7FFFFFFF
    assert _murmur2_partition(b"foobar", 1 << 31) == (-790332482) & 0x7FFFFFFF
