"""From request records to action and rejection records, in one query. DataFrame in and out.

Rows stay in their order and their partition: nothing here may shuffle, because the dispatcher
relies on the actions of one request partition coming in the order of the requests.

A rejection carries the request as it was. Two exceptions, because a record that the broker refuses
would stop the stream for everyone:
- a null key on a compacted rejections topic becomes the request's coordinates
- what would not fit (a compressed record can be far larger than its topic's limit) is left out, the
  value first, then the headers and the key; the sentence says so, and where the request stands
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import NATIVE_SOURCE, Verb
from punctual_worker.contract.dialects import Dialect
from punctual_worker.intake import dialects
from punctual_worker.intake.offset_sets import Offsets, contains
from punctual_worker.intake.rarely import rarely
from punctual_worker.intake.requests import kept_headers, with_facts
from punctual_worker.intake.rules import Rules
from punctual_worker.intake.sources import Source
from punctual_worker.intake.verdicts import with_verdict

OBSERVED: Final = "requests"
"""Name of the counts that come with each batch's progress, see `with_counts`."""
_REJECTION_ROOM_BYTES: Final = 1024
"""More than the error headers' names, their short values and Kafka's framing can take."""


@dataclass(frozen=True)
class Delivered:
    """Columns with what an action is to deliver."""

    key: str
    value: str
    headers: Column
    kept: Column
    """The request's own headers: what a rejection carries."""


def route(
    records: DataFrame,
    rules: Rules,
    *,
    source: Source | None = None,
    already: Mapping[int, Offsets] | None = None,
) -> DataFrame:
    """What to write for each request: topic, partition, key, value and headers.

    Nothing for those that would be rejected and have been `already`. Without a `source` they are
    from the app's own requests topic.
    """
    if source is None or source.dialect is Dialect.NATIVE:
        tag = NATIVE_SOURCE if source is None else source.tag
        topic = "" if source is None or source.is_own else source.topic
        verdicts = with_verdict(with_facts(records, rules, tag=tag), rules, source=topic)
        kept = kept_headers()
        delivered = Delivered("key", "value", kept, kept)
    else:
        verdicts = dialects.judged(records, rules, source)
        delivered = Delivered("out_key", "out_value", sf.col("out_headers"), sf.col("kept"))
    judged = _with_rejection(verdicts, rules)
    repeated = contains(already or {})
    if repeated is None:
        return _written(judged, rules, delivered)
    marked = judged.withColumn("repeated", sf.when(~sf.col("accepted"), rarely(repeated)))
    written = _written(marked, rules, delivered, "repeated")
    # A filter on a column of its own, after all the rest: Spark does not move it down (the clock in
    # the rejection's headers forbids that), where it would make every record be judged twice.
    return written.where(~sf.coalesce("repeated", sf.lit(False))).drop("repeated")


def with_counts(routed: DataFrame, rules: Rules) -> DataFrame:
    """Counts the actions by verb as they pass; they arrive with the progress of each batch."""
    verb = sf.col("verb")
    counts = (sf.count(sf.when(verb == one.value, 1)).alias(one.value) for one in Verb)
    # Kafka's sink leaves the column of the verbs alone: to drop it would cost a copy of every row.
    return routed.observe(OBSERVED, *counts)


def _with_rejection(judged: DataFrame, rules: Rules) -> DataFrame:
    rejected = ~sf.col("accepted")
    source = sf.concat_ws("/", "topic", "partition", "offset")
    value_bytes = sf.coalesce(sf.octet_length("value"), sf.lit(0))
    room = sf.octet_length("sentences") + sf.octet_length("codes") + _REJECTION_ROOM_BYTES
    needed = sf.col("request_bytes") + room
    return judged.withColumns(
        {
            "source": sf.when(rejected, source),
            "no_value": rejected & (needed > rules.max_rejection_bytes),
            "no_headers": rejected & (needed - value_bytes > rules.max_rejection_bytes),
        }
    )


def _written(judged: DataFrame, rules: Rules, delivered: Delivered, *others: str) -> DataFrame:
    accepted = sf.col("accepted")
    partition = (sf.col("hash") % rules.action_partitions).cast("int")
    null_value_as_empty = sf.coalesce(delivered.value, sf.lit(b""))
    return judged.select(
        sf.when(accepted, sf.lit(rules.actions_topic))
        .otherwise(sf.lit(rules.rejections_topic))
        .alias("topic"),
        sf.when(accepted, partition).alias("partition"),
        sf.when(accepted, sf.col("action_key").cast("binary"))
        .otherwise(_rejection_key(rules))
        .alias("key"),
        sf.when(accepted, null_value_as_empty)
        .when(sf.col("no_value"), sf.lit(b""))
        .otherwise(sf.col("value"))
        .alias("value"),
        sf.when(accepted, _with_added(delivered.headers, _action_headers(delivered)))
        .otherwise(rarely(_rejection_headers(delivered.kept)))
        .alias("headers"),
        sf.when(accepted, sf.col("verb")).alias("verb"),
        *others,
    )


def _rejection_headers(kept: Column) -> Column:
    added = _error_headers()
    return sf.when(sf.col("no_headers"), sf.array(*added)).otherwise(_with_added(kept, added))


def _rejection_key(rules: Rules) -> Column:
    source = sf.col("source").cast("binary")
    key = sf.when(sf.col("no_headers"), source).otherwise(sf.col("key"))
    return sf.coalesce(key, source) if rules.rejections_need_keys else key


def _with_added(headers: Column, added: list[Column]) -> Column:
    return sf.when(headers.isNull(), sf.array(*added)).otherwise(
        sf.concat(headers, sf.array(*added))
    )


def _action_headers(delivered: Delivered) -> list[Column]:
    return [
        _header(names.ACTION_USER_KEY, sf.col(delivered.key)),
        _header(names.ACTION_PLAN, sf.col("plan").cast("binary")),
    ]


def _error_headers() -> list[Column]:
    left_out = sf.when(
        sf.col("no_headers"),
        sf.concat(sf.lit(" Key, value and headers are left out here"), _still_at()),
    ).when(sf.col("no_value"), sf.concat(sf.lit(" The value is left out here"), _still_at()))
    sentences = sf.concat(sf.col("sentences"), sf.coalesce(left_out, sf.lit("")))
    texts = {
        names.ERROR_CODE: sf.col("codes"),
        names.ERROR: sentences,
        names.SOURCE: sf.col("source"),
        names.REJECTED_AT: _now(),
    }
    return [_header(name, text.cast("binary")) for name, text in texts.items()]


def _still_at() -> Column:
    return sf.concat(
        sf.lit(" because they would not fit; the request stands at "), "source", sf.lit(".")
    )


def _now() -> Column:
    # Spark's own current time stands still for the whole of a batch, which may last minutes.
    clock = sf.reflect(sf.lit("java.lang.System"), sf.lit("currentTimeMillis")).try_cast("bigint")
    return sf.date_format(sf.timestamp_millis(clock), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _header(name: str, value: Column) -> Column:
    return sf.struct(sf.lit(name).alias("key"), value.alias("value"))
