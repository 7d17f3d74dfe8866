"""Karafka's scheduled messages: each becomes what Karafka itself would carry out."""

import pytest
from punctual_worker.contract.actions import decode_plan, split_action_headers
from punctual_worker.contract.dialects import Dialect
from pyspark.sql import SparkSession
from support import dialects
from support.dialect_routing import DUE_S, NOW_S, OLD, delivery, routed
from support.request_rules import Request
from support.routing import route, rules


def test_karafka_headers_say_when_and_where_to(spark: SparkSession) -> None:
    one = dialects.karafka(
        b"events-1",
        b"\x00payload",
        epoch=DUE_S,
        topic="events",
        key="user-7",
        partition=5,
        headers=[("trace", b"1"), ("schedule_source_topic", b"of an earlier delivery")],
    )
    (action,) = routed(spark, Dialect.KARAFKA, one)
    plan, key, value, headers = delivery(action)
    assert (plan.verb, plan.due_ms, plan.destination) == ("R", DUE_S * 1000, "events")
    assert (plan.partition, plan.request_id, key, value) == (
        *(5, "events-1"),
        *(b"user-7", b"\x00payload"),
    )
    assert headers == [
        *(header for header in one.headers if header[0] != "schedule_source_topic"),
        ("schedule_source_topic", OLD.encode()),
        ("schedule_source_partition", b"2"),
        ("schedule_source_offset", b"40"),
        ("schedule_source_key", b"events-1"),
    ]


def test_karafka_can_schedule_a_null_value(spark: SparkSession) -> None:
    one = dialects.karafka(b"i", None, epoch=DUE_S, topic="t", key="k")
    plan, key, value, _ = delivery(routed(spark, Dialect.KARAFKA, one)[0])
    assert (plan.verb, key, value) == ("R", b"k", None)


def test_what_karafka_writes_to_cancel_and_after_a_delivery_cancels(spark: SparkSession) -> None:
    done = dialects.karafka(b"i", None, epoch=DUE_S, topic="t")
    done.headers[2] = ("schedule_source_type", b"tombstone")
    for action in routed(spark, Dialect.KARAFKA, dialects.karafka_cancel(b"i"), done):
        assert decode_plan(action.plan.encode()).verb == "C"


def test_what_the_dispatcher_must_reject_is_a_native_request_then(spark: SparkSession) -> None:
    one = dialects.karafka(b"id", b"v", epoch=DUE_S, topic="t", partition=3)
    (action,) = routed(spark, Dialect.KARAFKA, one)
    headers, key, _ = split_action_headers(action.headers)
    again = Request(0, 1, NOW_S * 1000, key, action.value, tuple(headers))
    (native,) = route(spark, [again], rules())
    mine, theirs = decode_plan(native.plan.encode()), decode_plan(action.plan.encode())
    assert mine == theirs._replace(flags="", source="")


@pytest.mark.parametrize(
    ("partition", "partition_key", "planned", "is_placed"),
    [
        (None, "tenant-1", None, True),
        # as in Karafka's producer, the key counts for more
        (5, "tenant-1", None, True),
        (5, "", 5, False),
        (None, "", None, False),
        (None, None, None, False),
    ],
)
def test_a_partition_key_chooses_the_partition(
    spark: SparkSession,
    partition: int | None,
    partition_key: str | None,
    planned: int | None,
    is_placed: bool,
) -> None:
    one = dialects.karafka(
        *(b"i", b"v"),
        epoch=DUE_S,
        topic="t",
        key="user-7",
        partition=partition,
        partition_key=partition_key,
    )
    plan, key, _, headers = delivery(routed(spark, Dialect.KARAFKA, one)[0])
    assert (plan.partition, plan.placed, plan.bare) == (planned, is_placed, True)
    assert key == b"user-7"
    assert headers[: len(one.headers)] == one.headers


def test_a_cancel_has_nothing_to_place(spark: SparkSession) -> None:
    done = dialects.karafka(b"i", None, epoch=DUE_S, topic="t", partition_key="tenant-1")
    done.headers[2] = ("schedule_source_type", b"tombstone")
    (action,) = routed(spark, Dialect.KARAFKA, done)
    assert action.plan == f"1|C|0||||nb|||{OLD}||||i"
