"""A request's own headers, found and parsed: records in, records with a column per fact out. Pure.

A header is *there* when its name is, whatever its value; a null or empty value is then as wrong as
any other value that is not what is wanted, and never stands for an absent header.

Higher-order functions cost half the throughput, so headers are looked up in a map (the last of a
repeated name wins, see `session`), and what a map cannot tell (null values, names outside the
contract, stale ones) is only looked into for records that `odd` lets through: it is true for all
that need it and for few others.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import NATIVE_SOURCE, Verb
from punctual_worker.intake import times
from punctual_worker.intake.rules import Rules

MAX_ID_BYTES: Final = 255
MAX_CRON_CHARS: Final = 255
_HEADER_OVERHEAD_BYTES: Final = 10
"""Two lengths as varints, of at most 5 bytes each."""
ACTION_ROOM_BYTES: Final = 4096
"""More than the plan, the action's key and Kafka's framing can take."""

_TOPIC: Final = r"\A[a-zA-Z0-9._-]{1,249}\z"
_CRON_FIELD: Final = r"[0-9A-Za-z*,/?#-]+"
_CRON: Final = rf"\A(?=.{{1,{MAX_CRON_CHARS}}}\z){_CRON_FIELD}(?:[ \t]+{_CRON_FIELD}){{4,5}}\z"
_TIMEZONE: Final = r"\A(?=.{1,64}\z)[A-Za-z][A-Za-z0-9+_-]*(?:/[A-Za-z0-9][A-Za-z0-9+_-]*){0,2}\z"
_MISFIRE: Final = r"(?i)\A(?:once|all|skip)\z"
_PARTITION: Final = r"\A[0-9]{1,10}\z"
_VERBS: Final = {verb.name.lower(): verb for verb in Verb}


def raw(name: str) -> Column:
    """Value of a request header as text, of whatever bytes; null when it is null or absent."""
    return sf.col(f"raw:{name}")


def there(name: str) -> Column:
    """Whether the record has the header at all."""
    return sf.col(f"has:{name}")


def with_facts(records: DataFrame, rules: Rules, *, tag: str = NATIVE_SOURCE) -> DataFrame:
    """Kafka records with everything that is to be known about them as requests.

    `tag`: stands for their topic in action keys.
    """
    return _with_due(_with_parsed(_with_headers(_with_oddities(records), tag), rules))


def _with_oddities(records: DataFrame) -> DataFrame:
    header_names, values = sf.col("headers.key"), sf.col("headers.value")
    others = sf.array_except(header_names, sf.array(*map(sf.lit, names.REQUEST_HEADERS)))
    outside = sf.contains(sf.array_join(others, "\n"), sf.lit(names.PREFIX))
    # `array_contains` is null when no value is empty but some value is null.
    empty_or_null = sf.coalesce(sf.array_contains(values, sf.lit(b"")), sf.lit(True))
    return records.select(
        *("topic", "partition", "offset", "key", "value", "headers"),
        sf.unix_millis("timestamp").alias("ts_ms"),
        sf.map_from_entries("headers").alias("map"),
        (sf.col("headers").isNotNull() & (empty_or_null | outside)).alias("odd"),
        request_bytes(header_names, values).alias("request_bytes"),
    )


def request_bytes(header_names: Column, values: Column) -> Column:
    """How much of a record the user's key, value and headers take, at most."""
    # Uncompressed: a producer's compression lets a record through that is far beyond the limit.
    headers = sf.octet_length(sf.array_join(header_names, "")) + sf.octet_length(
        sf.array_join(values.cast("array<string>"), "")
    )
    return (
        _octets("key")
        + _octets("value")
        + sf.coalesce(headers, sf.lit(0))
        + sf.coalesce(sf.size("headers"), sf.lit(0)) * _HEADER_OVERHEAD_BYTES
    )


def _octets(column: str) -> Column:
    return sf.coalesce(sf.octet_length(column), sf.lit(0))


def _with_headers(records: DataFrame, tag: str) -> DataFrame:
    columns = []
    for name in names.REQUEST_HEADERS:
        value = sf.try_element_at(sf.col("map"), sf.lit(name))
        columns.append(value.cast("string").alias(f"raw:{name}"))
        is_null = sf.col("odd") & sf.map_contains_key(sf.col("map"), name)
        columns.append((value.isNotNull() | is_null).alias(f"has:{name}"))
    return records.select(
        *("topic", "partition", "offset", "key", "value", "headers", "ts_ms", "request_bytes"),
        sf.when(sf.col("odd"), _unknown_names()).alias("unknown"),
        sf.when(sf.col("odd"), _without_stale()).otherwise(sf.col("headers")).alias("kept"),
        sf.concat_ws("/", sf.lit(tag), "partition", "offset").alias("action_key"),
        *columns,
    )


def _unknown_names() -> Column:
    known = (*names.REQUEST_HEADERS, *names.STALE_HEADERS)
    unknown = sf.filter(
        sf.array_except(sf.col("headers.key"), sf.array(*map(sf.lit, known))),
        lambda name: name.startswith(names.PREFIX),
    )
    return sf.when(sf.size(unknown) > 0, unknown)


def _without_stale() -> Column:
    return sf.filter("headers", lambda header: ~header["key"].isin(*names.STALE_HEADERS))


def _with_parsed(records: DataFrame, rules: Rules) -> DataFrame:
    # Not in upper case: an s is not the only letter that becomes an S.
    action = sf.lower(raw(names.ACTION))
    verb = sf.when(~there(names.ACTION), sf.lit(Verb.ADD.value))
    for word, one in _VERBS.items():
        verb = verb.when(action == word, sf.lit(one.value))
    request_id = raw(names.REQUEST_ID)
    id_is_legal = sf.octet_length(request_id).between(1, MAX_ID_BYTES) & sf.is_valid_utf8(
        request_id
    )
    return records.withColumns(
        {
            "verb": verb,
            "request_id": sf.when(id_is_legal, request_id),
            "destination": sf.when(is_legal_topic(raw(names.DELIVER_TO)), raw(names.DELIVER_TO)),
            "at_ms": times.instant_ms(raw(names.DELIVER_AT)),
            "delay_ms": times.duration_ms(raw(names.DELAY)),
            "cron": _if_matches(names.CRON, _CRON),
            "timezone": _if_matches(names.TIMEZONE, _TIMEZONE),
            "misfire": sf.lower(_if_matches(names.MISFIRE, _MISFIRE)),
            "to_partition": _if_matches(names.DELIVER_PARTITION, _PARTITION).try_cast("int"),
            "expires_ms": times.instant_ms(raw(names.EXPIRES_AT)),
            "spread_ms": times.duration_ms(raw(names.SPREAD)),
            "times": sum(
                (there(name).cast("int") for name in (names.DELIVER_AT, names.DELAY, names.CRON)),
                start=sf.lit(0),
            ),
            "fits": sf.col("request_bytes") + ACTION_ROOM_BYTES <= rules.max_action_bytes,
        }
    )


def is_legal_topic(topic: Column) -> Column:
    """Whether a broker would accept this topic name."""
    return topic.rlike(_TOPIC) & ~topic.isin(".", "..")


def _if_matches(name: str, pattern: str) -> Column:
    return sf.when(raw(name).rlike(pattern), raw(name))


def _with_due(records: DataFrame) -> DataFrame:
    schedule_id = sf.coalesce("request_id", "action_key")
    hashed = sf.crc32(schedule_id.cast("binary"))
    # The hash spreads over 49 days; a longer spread is simply not used up.
    later = sf.coalesce(sf.try_mod(sf.col("hash"), sf.col("spread_ms")), sf.lit(0))
    asked = sf.coalesce(
        sf.col("at_ms") + later,
        # A record without a timestamp (-1) has no moment to count from.
        sf.when(sf.col("ts_ms") >= 0, sf.col("ts_ms") + sf.col("delay_ms") + later),
        # The dispatcher works out the times of recurring ones, their spread too.
        sf.when(sf.col("cron").isNotNull(), sf.col("ts_ms")),
    )
    return records.withColumn("hash", hashed).withColumn(
        "due_ms", sf.when(sf.col("times") == 1, asked)
    )
