"""From request records to action and rejection records, in one query. DataFrame in and out.

Rows stay in their order and their partition: nothing here may shuffle, because the dispatcher
relies on the actions of one request partition coming in the order of the requests.

A rejection carries the request as it was. Two exceptions, because a record that the broker refuses
would stop the stream for everyone:
- a null key on a compacted rejections topic becomes the request's coordinates
- what would not fit (a compressed record can be far larger than its topic's limit) is left out, the
  value first, then the headers and the key; the sentence says so, and where the request stands
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from punctual_worker.contract import headers as names
from punctual_worker.intake.requests import with_facts
from punctual_worker.intake.rules import Rules
from punctual_worker.intake.verdicts import with_verdict

OBSERVED: Final = "requests"
"""Name of the counts that come with each batch's progress, see `with_counts`."""
_REJECTION_ROOM_BYTES: Final = 1024
"""More than the error headers' names, their short values and Kafka's framing can take."""


def route(records: DataFrame, rules: Rules) -> DataFrame:
    """What to write for each request: topic, partition, key, value and headers."""
    judged = with_verdict(with_facts(records, rules), rules)
    return _written(_with_rejection(judged, rules), rules)


def with_counts(routed: DataFrame, rules: Rules) -> DataFrame:
    """Counts the actions by verb as they pass; they arrive with the progress of each batch."""
    return routed.observe(
        OBSERVED, *(F.count(F.when(F.col("verb") == verb, 1)).alias(verb) for verb in "ARC")
    ).drop("verb")


def _with_rejection(judged: DataFrame, rules: Rules) -> DataFrame:
    rejected = ~F.col("accepted")
    source = F.concat_ws("/", "topic", "partition", "offset")
    value_bytes = F.coalesce(F.octet_length("value"), F.lit(0))
    room = F.octet_length("sentences") + F.octet_length("codes") + _REJECTION_ROOM_BYTES
    needed = F.col("request_bytes") + room
    return judged.withColumns(
        {
            "source": F.when(rejected, source),
            "no_value": rejected & (needed > rules.max_rejection_bytes),
            "no_headers": rejected & (needed - value_bytes > rules.max_rejection_bytes),
        }
    )


def _written(judged: DataFrame, rules: Rules) -> DataFrame:
    accepted = F.col("accepted")
    partition = (F.col("hash") % rules.action_partitions).cast("int")
    null_value_as_empty = F.coalesce("value", F.lit(b""))
    return judged.select(
        F.when(accepted, F.lit(rules.actions_topic))
        .otherwise(F.lit(rules.rejections_topic))
        .alias("topic"),
        F.when(accepted, partition).alias("partition"),
        F.when(accepted, F.col("action_key").cast("binary"))
        .otherwise(_rejection_key(rules))
        .alias("key"),
        F.when(accepted, null_value_as_empty)
        .when(F.col("no_value"), F.lit(b""))
        .otherwise(F.col("value"))
        .alias("value"),
        F.when(accepted, _with_added(F.col("kept"), _action_headers()))
        .when(F.col("no_headers"), F.array(*_error_headers()))
        .otherwise(_with_added(F.col("kept"), _error_headers()))
        .alias("headers"),
        F.when(accepted, F.col("verb")).alias("verb"),
    )


def _rejection_key(rules: Rules) -> Column:
    source = F.col("source").cast("binary")
    key = F.when(F.col("no_headers"), source).otherwise(F.col("key"))
    return F.coalesce(key, source) if rules.rejections_need_keys else key


def _with_added(headers: Column, added: list[Column]) -> Column:
    return F.when(headers.isNull(), F.array(*added)).otherwise(F.concat(headers, F.array(*added)))


def _action_headers() -> list[Column]:
    return [
        _header(names.ACTION_USER_KEY, F.col("key")),
        _header(names.ACTION_PLAN, F.col("plan").cast("binary")),
    ]


def _error_headers() -> list[Column]:
    left_out = F.when(
        F.col("no_headers"),
        F.concat(F.lit(" Key, value and headers are left out here"), _still_at()),
    ).when(F.col("no_value"), F.concat(F.lit(" The value is left out here"), _still_at()))
    sentences = F.concat(F.col("sentences"), F.coalesce(left_out, F.lit("")))
    texts = {
        names.ERROR_CODE: F.col("codes"),
        names.ERROR: sentences,
        names.SOURCE: F.col("source"),
        names.REJECTED_AT: _now(),
    }
    return [_header(name, text.cast("binary")) for name, text in texts.items()]


def _still_at() -> Column:
    return F.concat(
        F.lit(" because they would not fit; the request stands at "), "source", F.lit(".")
    )


def _now() -> Column:
    # Spark's own current time stands still for the whole of a batch, which may last minutes.
    clock = F.reflect(F.lit("java.lang.System"), F.lit("currentTimeMillis")).try_cast("bigint")
    return F.date_format(F.timestamp_millis(clock), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.alias("value"))
