"""A bare Spark query from Kafka to Kafka: what intake could at best be. A process of its own.

Same session, same JVM settings, same mode, same source and sink as intake; only the expressions
between them are gone.
"""

import sys
from pathlib import Path

from punctual_worker.intake.main import rules_of
from punctual_worker.intake.session import intake_dir, start_session
from punctual_worker.intake.stream import sink_options, source_options
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.local.jars import jar_paths
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin
from pyspark.sql import functions as sf


def main(servers: str, app_id: str, folder: str, destination: str) -> None:
    """Copies the app's requests until the process is ended."""
    settings = Settings(bootstrap_servers=servers, app_id=app_id, data_dir=Path(folder))
    topics = TopicAdmin(librdkafka_config(settings)).describe(settings.topics.all)
    requests = settings.topics.requests
    partitions = topics[requests].partitions
    spark = start_session(settings, jars=jar_paths("spark"), request_partitions=partitions)
    records = (
        spark.readStream.format("kafka")
        .options(**source_options(settings, requests), startingOffsets="earliest")
        .load()
    )
    query = (
        records.select(sf.lit(destination).alias("topic"), "key", "value", "headers")
        .writeStream.format("kafka")
        .options(**sink_options(settings, rules_of(settings, topics)))
        .option("checkpointLocation", str(intake_dir(settings) / "checkpoint"))
        .outputMode("update")
        .trigger(realTime=f"{settings.intake_batch_seconds} seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
