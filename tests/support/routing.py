"""Runs requests through the real intake expressions on a static DataFrame."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from punctual_worker.contract import headers as names
from punctual_worker.intake import pipeline
from punctual_worker.intake.offset_sets import Offsets
from punctual_worker.intake.rules import Rules, rules_from
from punctual_worker.intake.sources import Source
from punctual_worker.settings import Settings
from pyspark.sql import SparkSession
from support.request_rules import Request

REQUESTS = "test-schedule-requests"
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Routed:
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def is_action(self) -> bool:
        return self.topic.endswith("-schedule-actions")

    @property
    def plan(self) -> str:
        name, value = self.headers[-1]
        assert name == names.ACTION_PLAN
        assert value is not None
        return value.decode()

    @property
    def codes(self) -> set[str]:
        value = dict(self.headers)[names.ERROR_CODE]
        assert value is not None
        found = value.decode().split(",")
        assert len(found) == len(set(found)), f"a code twice: {found}"
        return set(found)

    @property
    def sentences(self) -> str:
        value = dict(self.headers)[names.ERROR]
        assert value is not None
        return value.decode()


def rules(*, rejections_need_keys: bool = True, **settings: object) -> Rules:
    return rules_from(
        Settings.model_validate({"app_id": "test", **settings}),
        action_partitions=8,
        rejections_need_keys=rejections_need_keys,
    )


def route(
    spark: SparkSession,
    requests: list[Request],
    rules: Rules,
    already: Mapping[int, Offsets] | None = None,
    source: Source | None = None,
) -> list[Routed]:
    """One output record per request (but for those rejected `already`), in their order."""
    rows = [
        (
            REQUESTS if source is None else source.topic,
            request.partition,
            request.offset,
            EPOCH + timedelta(milliseconds=request.timestamp_ms),
            request.key,
            request.value,
            # Spark's Kafka source gives null, not an empty list, where there are no headers.
            list(request.headers) or None,
        )
        for request in requests
    ]
    records = spark.createDataFrame(rows, SCHEMA)
    out = pipeline.route(records, rules, already=already, source=source).collect()
    return [
        Routed(
            row["topic"],
            row["partition"],
            _bytes(row["key"]),
            _bytes(row["value"]),
            [(header["key"], _bytes(header["value"])) for header in row["headers"]],
        )
        for row in out
    ]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
