"""Records of a dialect through the real intake expressions, and what would be delivered of them."""

import zlib

from punctual_worker.contract.actions import Plan, decode_plan, split_action_headers
from punctual_worker.contract.dialects import Dialect
from punctual_worker.intake.sources import Source
from pyspark.sql import SparkSession
from support import dialects
from support.kafka import Record
from support.request_rules import Request
from support.routing import Routed, route, rules

NOW_S = 1_794_996_000
DUE_S = NOW_S + 86_400
OLD = "old-schedules"
TAG = f"{zlib.crc32(OLD.encode()):08x}"
ALL = [dialect for dialect in Dialect if dialect is not Dialect.NATIVE]


def source(dialect: Dialect) -> Source:
    return Source(OLD, dialect, TAG, partitions=3)


def routed(
    spark: SparkSession, dialect: Dialect, *records: Record, **settings: object
) -> list[Routed]:
    requests = [
        Request(2, 40 + index, NOW_S * 1000 + 999, one.key, one.value, tuple(one.headers))
        for index, one in enumerate(records)
    ]
    known = rules(sources={OLD: dialect.value}, **settings)  # type: ignore[arg-type]
    return route(spark, requests, known, source=source(dialect))


def delivery(action: Routed) -> tuple[Plan, bytes | None, bytes | None, dialects.Headers]:
    """Plan, key, value and headers of what the dispatcher would deliver."""
    assert action.is_action, action
    headers, key, plan_text = split_action_headers(action.headers)
    plan = decode_plan(plan_text)
    value = None if plan.null_value else action.value
    return plan, key, value, [h for h in headers if not h[0].startswith("x-scheduler-")]
