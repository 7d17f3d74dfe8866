"""The streaming query: where it reads, how it writes. Kafka in, Kafka out, nothing in between."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from punctual_worker.intake import pipeline
from punctual_worker.intake.replays import Rejected
from punctual_worker.intake.rules import Rules
from punctual_worker.kafka_clients import java_config
from punctual_worker.settings import Settings

_FOR_EVER: Final = str(2**31 - 1)
_LARGEST: Final = 2**31 - 1


def start_query(
    spark: SparkSession,
    settings: Settings,
    *,
    rules: Rules,
    starting_offsets: Mapping[int, int],
    already: Mapping[int, Rejected],
    checkpoint: Path,
) -> StreamingQuery:
    """Start; `starting_offsets` count only where the checkpoint directory is new.

    Requests that have been rejected `already` are not rejected again.
    """
    records = (
        spark.readStream.format("kafka")
        .options(**_source_options(settings, starting_offsets))
        .load()
    )
    written = pipeline.with_counts(pipeline.route(records, rules, already=already), rules)
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


def _source_options(settings: Settings, offsets: Mapping[int, int]) -> dict[str, str]:
    topic = settings.topics.requests
    places = {topic: {str(number): at for number, at in sorted(offsets.items())}}
    return {
        **_connection(settings),
        "subscribe": topic,
        "includeHeaders": "true",
        "startingOffsets": json.dumps(places) if offsets else "earliest",
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
