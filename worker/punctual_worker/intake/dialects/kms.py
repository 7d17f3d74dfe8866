"""sky's Kafka Message Scheduler: the value is a schedule, in JSON or Avro; the key its id. Pure.

A schedule has time (epoch milliseconds), topic, key, value (null for a tombstone) and perhaps
headers; in JSON its bytes are in base64. It is delivered exactly as given. A null value cancels.

Avro comes in two forms, with headers and, from older producers, without; neither has an envelope.
What is left over after a schedule without headers makes it unreadable: half of something else must
not be delivered.
"""

import json
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro

from punctual_worker.contract.actions import Verb
from punctual_worker.intake.dialects.judging import HEADERS_TYPE, Words, milliseconds, no_headers

_FIELDS: Final = "{time (epoch milliseconds), topic, key, value, headers}"
_TIME_WANTED: Final = "milliseconds since 1970, such as 1893456000000"
JSON_WORDS: Final = Words(
    to="topic (in the value)",
    time="time (in the value)",
    time_wanted=_TIME_WANTED,
    partition="",
    readable=f"the value is no schedule: want {_FIELDS} in JSON, key, value and headers in base64.",
)
AVRO_WORDS: Final = Words(
    to=JSON_WORDS.to,
    time=JSON_WORDS.time,
    time_wanted=_TIME_WANTED,
    partition="",
    readable=f"the value is no schedule: want {_FIELDS} in Avro's binary form, without envelope.",
)
_JSON_SCHEMA: Final = (
    "time string, topic string, key string, value string, headers map<string,string>, broken string"
)
_JSON_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken"}
_AVRO_OPTIONS: Final = {"mode": "PERMISSIVE"}


def avro_schema(*, headers: bool) -> str:
    """The schema of a schedule, as sky's own program writes it."""
    fields = [
        {"name": "time", "type": "long"},
        {"name": "topic", "type": "string"},
        {"name": "key", "type": "bytes"},
        {"name": "value", "type": ["null", "bytes"]},
    ]
    if headers:
        fields.append({"name": "headers", "type": {"type": "map", "values": "bytes"}})
    return json.dumps(
        {
            "type": "record",
            "name": "ScheduleWithHeaders" if headers else "ScheduleNoHeaders",
            "namespace": "com.sky.kms.domain.Schedule",
            "fields": fields,
        }
    )


def read_json(records: DataFrame) -> DataFrame:
    """The columns that `judging` asks for."""
    found = sf.from_json(sf.col("value").cast("string"), _JSON_SCHEMA, _JSON_OPTIONS)
    records = records.withColumn("found", found)
    key, value, headers = (sf.col(f"found.{name}") for name in ("key", "value", "headers"))
    entries = sf.transform(
        sf.map_entries(headers),
        lambda one: sf.struct(one["key"].alias("key"), _bytes(one["value"]).alias("value")),
    )
    records = records.withColumns(
        {"out_key": _bytes(key), "out_value": _bytes(value), "out_headers": entries}
    )
    not_base64 = (
        (key.isNotNull() & sf.col("out_key").isNull())
        | (value.isNotNull() & sf.col("out_value").isNull())
        | sf.coalesce(sf.exists("out_headers", lambda one: one["value"].isNull()), sf.lit(False))
    )
    is_object = sf.col("found").isNotNull() & sf.col("found.broken").isNull()
    time = sf.col("found.time")
    return _read(
        records,
        readable=is_object & ~not_base64,
        time_text=time,
        at_ms=milliseconds(time),
    )


def read_avro(records: DataFrame) -> DataFrame:
    """The columns that `judging` asks for."""
    with_headers = from_avro("value", avro_schema(headers=True), _AVRO_OPTIONS)
    plain_schema = avro_schema(headers=False)
    plain = from_avro("value", plain_schema, _AVRO_OPTIONS)
    records = records.withColumn("full", with_headers).withColumn(
        "plain", sf.when(sf.col("full.time").isNull(), plain)
    )
    whole = sf.col("plain.time").isNotNull() & (
        to_avro(sf.col("plain"), plain_schema) == sf.col("value")
    )
    either = sf.when(sf.col("full.time").isNotNull(), sf.col("full")).when(
        whole,
        sf.struct(
            *("plain.time", "plain.topic", "plain.key", "plain.value"),
            sf.lit(None).cast("map<string,binary>").alias("headers"),
        ),
    )
    records = records.withColumn("found", either)
    records = records.withColumns(
        {
            "out_key": sf.col("found.key"),
            "out_value": sf.col("found.value"),
            "out_headers": sf.map_entries("found.headers").cast(HEADERS_TYPE),
        }
    )
    time = sf.col("found.time")
    return _read(
        records,
        readable=sf.col("found").isNotNull(),
        time_text=time.cast("string"),
        at_ms=milliseconds(time.cast("string")),
    )


def _read(records: DataFrame, *, readable: Column, time_text: Column, at_ms: Column) -> DataFrame:
    return records.withColumns(
        {
            "verb": sf.when(sf.col("value").isNull(), sf.lit(Verb.CANCEL.value)).when(
                readable, sf.lit(Verb.REPLACE.value)
            ),
            "to_text": sf.col("found.topic"),
            "time_text": time_text,
            "partition_text": sf.lit(None).cast("string"),
            "is_placed": sf.lit(False),
            "at_ms": at_ms,
            "out_headers": sf.coalesce("out_headers", no_headers()),
        }
    )


def _bytes(text: Column) -> Column:
    return sf.try_to_binary(text, sf.lit("base64"))
