"""Karafka's scheduled messages: headers say what, when and where to; the key is the id. Pure.

Delivered with all headers of the request, then where it came from, as there. What Karafka itself
writes once it has delivered a message (`tombstone`) counts as a cancel, and so does a bare null.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from punctual_worker.contract.actions import Verb
from punctual_worker.contract.dialects import KARAFKA_PARTITION_KEY
from punctual_worker.intake.dialects.judging import Words, header, seconds_ms

_VERSION: Final = "schedule_schema_version"
_KNOWN_VERSION: Final = "1.0.0"
_TYPE: Final = "schedule_source_type"
_EPOCH: Final = "schedule_target_epoch"
_TARGET_TOPIC: Final = "schedule_target_topic"
_TARGET_KEY: Final = "schedule_target_key"
_TARGET_PARTITION: Final = "schedule_target_partition"
_SOURCES: Final = (
    "schedule_source_topic",
    "schedule_source_partition",
    "schedule_source_offset",
    "schedule_source_key",
)

WORDS: Final = Words(
    to=_TARGET_TOPIC,
    time=_EPOCH,
    time_wanted="seconds since 1970, such as 1893456000",
    partition=_TARGET_PARTITION,
    readable=(
        f"the record is no scheduled message: want the headers {_VERSION} ({_KNOWN_VERSION}) and "
        f"{_TYPE} (schedule or cancel)."
    ),
)


def read(records: DataFrame) -> DataFrame:
    """The columns that `judging` asks for."""
    kind, version = _given(_TYPE).cast("string"), _given(_VERSION).cast("string")
    # A tool that removes a schedule sends no headers.
    is_bare = sf.col("value").isNull() & kind.isNull() & version.isNull()
    cancels = is_bare | ((version == _KNOWN_VERSION) & kind.isin("cancel", "tombstone"))
    earlier = sf.filter("kept", lambda one: ~one["key"].isin(*_SOURCES))
    return (
        records.withColumn("map", sf.map_from_entries("kept"))
        .withColumns(
            {
                "verb": sf.when(cancels, sf.lit(Verb.CANCEL.value)).when(
                    (version == _KNOWN_VERSION) & (kind == "schedule"), sf.lit(Verb.REPLACE.value)
                ),
                "to_text": _given(_TARGET_TOPIC).cast("string"),
                "time_text": _given(_EPOCH).cast("string"),
                "partition_text": _given(_TARGET_PARTITION).cast("string"),
                "is_placed": sf.coalesce(
                    sf.octet_length(_given(KARAFKA_PARTITION_KEY)) > 0, sf.lit(False)
                ),
                "out_key": _given(_TARGET_KEY),
                "out_value": sf.col("value"),
                "out_headers": sf.concat(earlier, _origin()),
            }
        )
        .withColumn("at_ms", seconds_ms(sf.col("time_text")))
    )


def _given(name: str) -> Column:
    return sf.try_element_at(sf.col("map"), sf.lit(name))


def _origin() -> Column:
    topic, partition, offset, key = _SOURCES
    return sf.array(
        header(topic, sf.col("topic").cast("binary")),
        header(partition, sf.col("partition").cast("string").cast("binary")),
        header(offset, sf.col("offset").cast("string").cast("binary")),
        header(key, sf.col("key")),
    )
