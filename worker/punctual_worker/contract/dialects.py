"""Dialects: the formats in which a requests topic may be written, ours and other systems'.

A request in a dialect becomes the same action as one of ours: REPLACE or CANCEL, with the record's
key as its id. Its plan has the flag `BARE`, because what is delivered is what the consumers of that
system know, without our trace headers.
"""

from enum import StrEnum
from typing import Final


class Dialect(StrEnum):
    """How the records of a topic ask for deliveries."""

    NATIVE = "native"
    """Headers of our own contract."""
    MESSAGE_SCHEDULER = "kafka-message-scheduler"
    """etf1's scheduler: headers `scheduler-*`."""
    KMS_JSON = "kms-json"
    """sky's Kafka Message Scheduler: the value is a schedule in JSON."""
    KMS_AVRO = "kms-avro"
    """sky's Kafka Message Scheduler: the value is a schedule in Avro's binary form."""
    KARAFKA = "karafka"
    """Karafka's scheduled messages: headers `schedule_*`."""


KARAFKA_PARTITION_KEY: Final = "schedule_target_partition_key"
"""Header whose hash chooses the partition of what is delivered, while the record's key is another;
intake marks plans that have one with the flag `PLACED`, and the dispatcher reads it."""
NAMES: Final = tuple(dialect.value for dialect in Dialect)
