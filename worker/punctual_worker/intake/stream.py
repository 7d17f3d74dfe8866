"""The streaming query: where it reads, how it writes. Kafka in, Kafka out, nothing in between."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from punctual_worker.intake import pipeline
from punctual_worker.intake.offset_sets import Offsets, contains
from punctual_worker.intake.rules import Rules
from punctual_worker.intake.sources import Source
from punctual_worker.kafka_clients import java_config
from punctual_worker.settings import Settings

_FOR_EVER: Final = str(2**31 - 1)
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True)
class Input:
    """A source, and what is known of its requests before the query starts; by partition."""

    source: Source
    starting_offsets: Mapping[int, int]
    already: Mapping[int, Offsets]
    """Requests that have been rejected: they are not rejected again."""
    superseded: Mapping[int, Offsets]
    """Requests that are not to be taken in, because later ones stand in their place."""


def start_query(
    spark: SparkSession,
    settings: Settings,
    *,
    rules: Rules,
    inputs: Sequence[Input],
    checkpoint: Path,
) -> StreamingQuery:
    """Start; the inputs' `starting_offsets` count only where the checkpoint directory is new."""
    routed = [_routed(spark, settings, rules, one) for one in inputs]
    written = pipeline.with_counts(functools.reduce(DataFrame.unionByName, routed), rules)
    writer = (
        written.writeStream.format("kafka")
        .queryName(f"{settings.app_id}-intake")
        .options(**sink_options(settings, rules))
        .option("checkpointLocation", str(checkpoint))
    )
    if settings.intake_mode == "real-time":
        length = f"{settings.intake_batch_seconds} seconds"
        # PySpark's stubs do not know the real-time trigger yet.
        live: DataStreamWriter = writer.outputMode("update").trigger(  # type: ignore[call-overload]
            realTime=length
        )
        return live.start()
    return writer.outputMode("append").trigger(processingTime="0 seconds").start()


def _routed(spark: SparkSession, settings: Settings, rules: Rules, one: Input) -> DataFrame:
    source, offsets = one.source, one.starting_offsets
    starting = offsets_text(source.topic, offsets) if offsets else "earliest"
    options = {**source_options(settings, source.topic), "startingOffsets": starting}
    records = spark.readStream.format("kafka").options(**options).load()
    if (over := contains(one.superseded)) is not None:
        records = records.where(~over)
    return pipeline.route(records, rules, source=source, already=one.already)


def offsets_text(topic: str, offsets: Mapping[int, int]) -> str:
    """Offsets as Spark's Kafka source wants them."""
    return json.dumps({topic: {str(number): at for number, at in sorted(offsets.items())}})


def source_options(settings: Settings, topic: str) -> dict[str, str]:
    """How a topic with requests is read, but for where it begins."""
    return {
        **_connection(settings),
        "subscribe": topic,
        "includeHeaders": "true",
        # What the broker has already deleted cannot be had back by standing still.
        "failOnDataLoss": "false",
        # A producer's aborted transaction never asked for anything.
        "kafka.isolation.level": "read_committed",
        "groupIdPrefix": f"{settings.app_id}-intake-spark",
    }


def sink_options(settings: Settings, rules: Rules) -> dict[str, str]:
    """Never give up, never overtake: what is written is always a prefix of what was sent."""
    largest = max(rules.max_action_bytes, rules.max_rejection_bytes) + 65_536
    return {
        **_connection(settings),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.retries": _FOR_EVER,
        "kafka.delivery.timeout.ms": _FOR_EVER,
        "kafka.max.block.ms": _FOR_EVER,
        "kafka.linger.ms": "1" if settings.intake_mode == "real-time" else "5",
        "kafka.batch.size": "65536",
        "kafka.max.request.size": str(largest),
        "kafka.buffer.memory": str(min(max(33_554_432, 4 * largest), _LARGEST)),
    }


def _connection(settings: Settings) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in java_config(settings).items()}
