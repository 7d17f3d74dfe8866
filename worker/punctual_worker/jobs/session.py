"""Spark for a batch job: intake's session settings with a batch job's differences."""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from punctual_worker.intake.session import EXPRESSION_CONF, OWN_CLUSTER, spark_conf
from punctual_worker.jobs.offsets import Span
from punctual_worker.kafka_clients import java_config
from punctual_worker.local.jars import jar_paths
from punctual_worker.settings import Settings

_SHUFFLE_PARTITIONS: Final = "16"


def start_batch_session(settings: Settings, *, job: str) -> SparkSession:
    """A session that uses every core, unless the settings name a Spark master."""
    settings = _without_intakes_executors(settings)
    directory = settings.data_dir.absolute() / "jobs" / job
    directory.mkdir(parents=True, exist_ok=True)
    conf = {
        **spark_conf(settings, jars=jar_paths("spark"), slots=1),
        "spark.app.name": f"{settings.app_id}-{job}",
        "spark.master": settings.intake_master or "local[*]",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.memory": "2g",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": _SHUFFLE_PARTITIONS,
        # Every table here is a whole topic: what to broadcast is said where it is known.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        **settings.spark,
        **EXPRESSION_CONF,
    }
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _without_intakes_executors(settings: Settings) -> Settings:
    """A job that is started in intake's pod, with its settings, works in that pod alone."""
    if settings.intake_master != OWN_CLUSTER:
        return settings
    theirs = ("spark.executor.", "spark.kubernetes.", "spark.submit.", "spark.driver.bindAddress")
    own = {name: value for name, value in settings.spark.items() if not name.startswith(theirs)}
    return settings.model_copy(update={"intake_master": "", "spark": own})


def read_committed(
    spark: SparkSession, settings: Settings, spans: Mapping[str, Mapping[int, Span]]
) -> DataFrame:
    """The committed records between these offsets, with their headers."""
    connection = {f"kafka.{name}": value for name, value in java_config(settings).items()}
    starts = {topic: {p: span.start for p, span in by.items()} for topic, by in spans.items()}
    ends = {topic: {p: span.end for p, span in by.items()} for topic, by in spans.items()}
    return (
        spark.read.format("kafka")
        .options(**connection)
        .options(
            assign=json.dumps({topic: sorted(by) for topic, by in spans.items()}),
            startingOffsets=json.dumps(starts),
            endingOffsets=json.dumps(ends),
            includeHeaders="true",
            # What compaction or retention takes while we read was not ours to keep.
            failOnDataLoss="false",
            groupIdPrefix=f"{settings.app_id}-job",
        )
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
