"""Requests of other schedulers: each becomes the action that its own scheduler would carry out."""

import zlib

import pytest
from punctual_worker.contract.actions import decode_plan, split_action_headers
from punctual_worker.contract.dialects import Dialect
from pyspark.sql import SparkSession
from support import dialects
from support.dialect_routing import ALL, DUE_S, NOW_S, OLD, TAG, delivery, routed, source
from support.kafka import Record
from support.request_rules import Request
from support.routing import route, rules

NATIVE = {"x-scheduler-action", "x-scheduler-deliver-to", "x-scheduler-deliver-at"}
NATIVE |= {"x-scheduler-request-id", "x-scheduler-deliver-partition"}


def test_etf1_headers_say_when_and_where_to(spark: SparkSession) -> None:
    one = dialects.etf1(
        b"vid1-online",
        b"video 1",
        epoch=DUE_S,
        topic="online-videos",
        key="vid1",
        headers=[("customer-header", b"dummy"), ("customer-header", None), ("bin", b"\xff\x00")],
    )
    (action,) = routed(spark, Dialect.MESSAGE_SCHEDULER, one)
    plan, key, value, headers = delivery(action)
    assert (plan.verb, plan.due_ms, plan.destination) == ("R", DUE_S * 1000, "online-videos")
    assert (plan.request_id, plan.source, plan.bare) == ("vid1-online", OLD, True)
    assert (key, value) == (b"vid1", b"video 1")
    assert headers == [
        *one.headers,
        ("scheduler-timestamp", str(NOW_S).encode()),
        ("scheduler-key", b"vid1-online"),
        ("scheduler-topic", OLD.encode()),
    ]
    assert action.key == f"{TAG}/2/40".encode()
    assert action.partition == zlib.crc32(b"vid1-online") % 8


def test_of_repeated_etf1_headers_the_first_counts(spark: SparkSession) -> None:
    twice: dialects.Headers = [("scheduler-epoch", b"1"), ("scheduler-target-topic", b"other")]
    one = dialects.etf1(b"i", b"v", epoch=DUE_S, topic="t", headers=twice)
    plan, key, _, _ = delivery(routed(spark, Dialect.MESSAGE_SCHEDULER, one)[0])
    assert (plan.due_ms, plan.destination, key) == (DUE_S * 1000, "t", None)


@pytest.mark.parametrize(
    ("dialect", "encode"),
    [(Dialect.KMS_JSON, dialects.kms_json), (Dialect.KMS_AVRO, dialects.kms_avro)],
)
@pytest.mark.parametrize("headers", [None, {}, {"a": b"\xff", "b": b""}])
@pytest.mark.parametrize("value", [b"\x00\xff", b"", None])
def test_a_kms_schedule_is_delivered_exactly_as_given(
    spark: SparkSession, dialect: Dialect, encode, headers, value: bytes | None
) -> None:
    one = encode(
        *(b"id-1", value), time_ms=DUE_S * 1000 + 7, topic="updates", key=b"\xfe", headers=headers
    )
    (action,) = routed(spark, dialect, one)
    plan, key, delivered, found = delivery(action)
    assert (plan.verb, plan.due_ms, plan.destination) == ("R", DUE_S * 1000 + 7, "updates")
    assert (plan.request_id, plan.bare, key, delivered) == ("id-1", True, b"\xfe", value)
    assert dict(found) == (headers or {})


@pytest.mark.parametrize("dialect", ALL)
def test_a_null_value_cancels(spark: SparkSession, dialect: Dialect) -> None:
    (action,) = routed(spark, dialect, Record(None, key=b"r|1"))
    assert action.plan == f"1|C|0||||nb|||{OLD}||||r|1"
    assert action.value == b""


def test_a_message_that_we_delivered_can_be_scheduled_again(spark: SparkSession) -> None:
    ours: dialects.Headers = [
        ("x-scheduler-request-id", b"r"),
        ("x-scheduler-scheduled-for", b"2026-11-18T20:00:00.000Z"),
        ("x-scheduler-source", b"a/0/1"),
    ]
    one = dialects.etf1(b"i", b"v", epoch=DUE_S, topic="t", headers=ours)
    (action,) = routed(spark, Dialect.MESSAGE_SCHEDULER, one)
    headers, _, _ = split_action_headers(action.headers)
    assert [value for name, value in headers if name == "x-scheduler-request-id"] == [b"i"]
    assert {name for name, _ in headers if name.startswith("x-")} <= NATIVE


LONG = b"x" * 256
BAD: list[tuple[Dialect, Record, str, str]] = [
    (
        Dialect.MESSAGE_SCHEDULER,
        Record(b"v", key=b"i"),
        "missing-deliver-to,missing-deliver-at",
        "scheduler-epoch is missing",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(b"i", b"v", epoch="soon", topic="t"),
        "invalid-deliver-at",
        "scheduler-epoch is 'soon': want seconds since 1970",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(b"i", b"v", epoch=DUE_S * 1000, topic="t"),
        "deliver-at-too-far",
        "check the unit",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(b"i", b"v", epoch="9" * 14, topic="t"),
        "deliver-at-too-far",
        "check the unit",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(b"i", b"v", epoch=DUE_S, topic="a/b"),
        "invalid-deliver-to",
        "scheduler-target-topic is 'a/b'",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(b"i", b"v", epoch=DUE_S, topic=OLD),
        "destination-not-allowed",
        OLD,
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(b"i", b"v", epoch=DUE_S, topic="test-schedule-requests"),
        "destination-not-allowed",
        "which is not allowed",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(None, b"v", epoch=DUE_S, topic="t"),
        "missing-request-id",
        "no key",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(LONG, b"v", epoch=DUE_S, topic="t"),
        "invalid-request-id",
        "takes 256 bytes: want 1 to 255",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(b"\xff", b"v", epoch=DUE_S, topic="t"),
        "not-utf8",
        "bytes FF",
    ),
    (
        Dialect.MESSAGE_SCHEDULER,
        dialects.etf1(b"i", b"v", epoch=DUE_S, topic="t", headers=[("x-scheduler-delay", b"PT1S")]),
        "unknown-header",
        "x-scheduler-delay",
    ),
    (
        Dialect.KARAFKA,
        Record(b"v", key=b"i"),
        "unknown-action",
        "schedule_schema_version (1.0.0)",
    ),
    (
        Dialect.KARAFKA,
        dialects.karafka(b"i", b"v", epoch=DUE_S, topic="t", partition="x"),
        "invalid-deliver-partition",
        "schedule_target_partition is 'x'",
    ),
    (Dialect.KMS_JSON, Record(b"no json", key=b"i"), "unknown-action", "in JSON"),
    (Dialect.KMS_JSON, Record(b"", key=b"i"), "unknown-action", "in JSON"),
    (Dialect.KMS_JSON, Record(b"\xff\xfe{", key=b"i"), "unknown-action", "in JSON"),
    (
        Dialect.KMS_JSON,
        Record(b'{"time": 1, "topic": "t", "key": "*", "value": null}', key=b"i"),
        "unknown-action",
        "base64",
    ),
    (
        Dialect.KMS_JSON,
        Record(b'{"time": 1, "topic": "t", "key": "aw==", "headers": {"a": "*"}}', key=b"i"),
        "unknown-action",
        "base64",
    ),
    (
        Dialect.KMS_JSON,
        Record(b"{}", key=b"i"),
        "missing-deliver-to,missing-deliver-at",
        "time (in the value) is missing",
    ),
    (
        Dialect.KMS_JSON,
        Record(b'{"time": 1.5, "topic": "t", "key": "aw=="}', key=b"i"),
        "invalid-deliver-at",
        "'1.5'",
    ),
    (
        Dialect.KMS_JSON,
        dialects.kms_json(
            *(b"i", b"v"), time_ms=1, topic="t", key=b"", headers={"x-scheduler-cron": b"*"}
        ),
        "unknown-header",
        "x-scheduler-cron",
    ),
    (Dialect.KMS_AVRO, Record(b"no avro", key=b"i"), "unknown-action", "Avro"),
    (Dialect.KMS_AVRO, Record(b"", key=b"i"), "unknown-action", "Avro"),
    (
        Dialect.KMS_AVRO,
        Record(b"\x02\x02t\xfe\xff\xff\xff\x0f", key=b"i"),
        "unknown-action",
        "Avro",
    ),
    (
        Dialect.KMS_AVRO,
        Record(b"\x02\x02t\x00\x00\xfe\xff\xff\xff\x0f\x02a\x00", key=b"i"),
        "unknown-action",
        "Avro",
    ),
    (
        Dialect.KMS_AVRO,
        dialects.kms_avro(b"i", b"v", time_ms=DUE_S * 1_000_000, topic="t", key=b""),
        "deliver-at-too-far",
        "check the unit",
    ),
]


@pytest.mark.parametrize("dialect", ALL)
def test_every_fault_has_its_code_and_a_sentence_that_names_it(
    spark: SparkSession, dialect: Dialect
) -> None:
    cases = [(record, codes, part) for kind, record, codes, part in BAD if kind is dialect]
    out = routed(spark, dialect, *(record for record, _, _ in cases))
    for (record, codes, part), rejection in zip(cases, out, strict=True):
        assert not rejection.is_action, record
        assert rejection.codes == set(codes.split(",")), (record, rejection)
        assert part in rejection.sentences, (record, rejection)
        assert rejection.value == record.value
        assert rejection.headers[:-4] == record.headers


@pytest.mark.parametrize("dialect", ALL)
def test_the_past_is_taken_and_the_allow_list_applies(
    spark: SparkSession, dialect: Dialect
) -> None:
    past, other = [
        {
            Dialect.MESSAGE_SCHEDULER: dialects.etf1(b"i", b"v", epoch=1, topic=topic),
            Dialect.KARAFKA: dialects.karafka(b"i", b"v", epoch=1, topic=topic),
            Dialect.KMS_JSON: dialects.kms_json(
                b"i", b"v", time_ms=-(2**63), topic=topic, key=b"k"
            ),
            Dialect.KMS_AVRO: dialects.kms_avro(
                b"i", b"v", time_ms=-(2**63), topic=topic, key=b"k"
            ),
        }[dialect]
        for topic in ("orders.eu", "other")
    ]
    taken, refused = routed(spark, dialect, past, other, destinations=["orders.*"])
    assert decode_plan(taken.plan.encode()).due_ms <= 1000
    assert refused.codes == {"destination-not-allowed"}


def test_a_native_source_keeps_its_own_coordinates(spark: SparkSession) -> None:
    headers = (("x-scheduler-deliver-to", b"t"), ("x-scheduler-delay", b"1s"))
    request = Request(1, 2, NOW_S * 1000, b"k", b"v", headers)
    (action,) = route(spark, [request], rules(), source=source(Dialect.NATIVE))
    assert action.key == f"{TAG}/1/2".encode()
    plan = decode_plan(action.plan.encode())
    assert (plan.source, plan.bare, plan.due_ms) == (OLD, False, NOW_S * 1000 + 1000)
