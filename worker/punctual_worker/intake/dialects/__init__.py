"""Requests of other systems, as Spark expressions: a module for each of them. Pure.

Each reads the records of its format into the columns that `judging` describes, and names what it
wants in its own words; judging, the plan and the records written are the same for all.
"""

from pyspark.sql import DataFrame

from punctual_worker.contract.dialects import Dialect
from punctual_worker.intake.dialects import judging, karafka, kms, message_scheduler
from punctual_worker.intake.rules import Rules
from punctual_worker.intake.sources import Source

_READERS = {
    Dialect.MESSAGE_SCHEDULER: (message_scheduler.read, message_scheduler.WORDS),
    Dialect.KMS_JSON: (kms.read_json, kms.JSON_WORDS),
    Dialect.KMS_AVRO: (kms.read_avro, kms.AVRO_WORDS),
    Dialect.KARAFKA: (karafka.read, karafka.WORDS),
}


def judged(records: DataFrame, rules: Rules, source: Source) -> DataFrame:
    """Kafka records of a source as judged requests, with the columns that `pipeline` writes."""
    read, words = _READERS[source.dialect]
    known = read(judging.with_record(records, source))
    return judging.with_verdict(known, rules, source, words)
