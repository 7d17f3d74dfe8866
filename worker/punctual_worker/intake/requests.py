"""A request's own headers, found and parsed: records in, records with a column per fact out. Pure.

A header is *there* when its name is, whatever its value; a null or empty value is then as wrong as
any other value that is not what is wanted, and never stands for an absent header.

Higher-order functions cost half the throughput: where one is used, all of a record's columns are
written to a row and read from it again. So there is none here. Headers are looked up by their place
(the last of a repeated name wins), because a map would have to be made for every record; and what
that cannot tell (null values, names outside the contract, stale ones) is only looked into for
records that `odd` lets through: it is true for all that need it and for few others. A name outside
the contract shows in that our prefix occurs more often than names of the contract were found.
"""

import string
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

_USUAL: Final = (names.DELIVER_TO, names.DELIVER_AT, names.REQUEST_ID, names.ACTION)
_UNUSUAL: Final = tuple(name for name in names.REQUEST_HEADERS if name not in _USUAL)

_MAX_TOPIC_BYTES: Final = 249
# All written out, they are looked up in a table.
_TOPIC: Final = rf"\A[{string.ascii_letters}{string.digits}._-]+\z"
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
    return _with_due(_with_parsed(_with_headers(_with_values(_with_names(records)), tag), rules))


def _with_names(records: DataFrame) -> DataFrame:
    header_names, values = sf.col("headers.key"), sf.col("headers.value")
    joined = sf.array_join(header_names, "\n")
    without_prefix = sf.replace(joined, sf.lit(names.PREFIX), sf.lit(""))
    under_prefix = sf.octet_length(joined) - sf.octet_length(without_prefix)
    return records.select(
        *("topic", "partition", "offset", "key", "value", "headers"),
        sf.unix_millis("timestamp").alias("ts_ms"),
        header_names.alias("names"),
        sf.reverse(header_names).alias("names_from_last"),
        values.alias("values"),
        under_prefix.alias("under_prefix"),
        # `array_contains` is null when no value is empty but some value is null.
        sf.coalesce(sf.array_contains(values, sf.lit(b"")), sf.lit(True)).alias("empty_or_null"),
        request_bytes(header_names, values).alias("request_bytes"),
    )


def _with_values(records: DataFrame) -> DataFrame:
    """Looks the headers up; the less usual ones only where there are more than the usual ones."""
    usual = {f"value:{name}": _value(name) for name in _USUAL}
    with_usual = records.withColumns(usual).withColumn("usual", _prefix_bytes(_USUAL))
    more = sf.col("under_prefix") > sf.col("usual")
    others = {f"value:{name}": sf.when(more, _value(name)) for name in _UNUSUAL}
    all_found = sf.col("usual") + _prefix_bytes(_UNUSUAL)
    odd = sf.col("empty_or_null") | (sf.col("under_prefix") != all_found)
    return with_usual.withColumns(others).withColumn("odd", sf.col("headers").isNotNull() & odd)


def _value(name: str) -> Column:
    """The value of the last header of this name. A place that is none (counted from the last, the
    place of an absent name is 0) gives null."""
    from_last = sf.array_position("names_from_last", name)
    return sf.get("values", (sf.size("values") - from_last).cast("int"))


def _prefix_bytes(header_names: tuple[str, ...]) -> Column:
    """As many bytes as our prefix takes in those of these names that were found."""
    found = (sf.col(f"value:{name}").isNotNull().cast("int") for name in header_names)
    return sum(found, start=sf.lit(0)) * len(names.PREFIX)


def request_bytes(header_names: Column, values: Column) -> Column:
    """How much of a record the user's key, value and headers take, at most."""
    # Uncompressed: a producer's compression lets a record through that is far beyond the limit.
    # Joined as `_with_names` joins them, so that it is done once.
    headers = sf.octet_length(sf.array_join(header_names, "\n")) + sf.octet_length(
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
        value = sf.col(f"value:{name}")
        columns.append(value.cast("string").alias(f"raw:{name}"))
        is_null = sf.col("odd") & sf.array_contains("names", name)
        columns.append((value.isNotNull() | is_null).alias(f"has:{name}"))
    return records.select(
        *("topic", "partition", "offset", "key", "value", "headers", "ts_ms", "request_bytes"),
        # Not with `&`: what is in it twice would be worked out for every record, ahead of both.
        sf.when(sf.col("odd"), sf.coalesce(_has_unknown_names(), sf.lit(False)))
        .otherwise(sf.lit(False))
        .alias("has_unknown"),
        "odd",
        sf.concat_ws("/", sf.lit(tag), "partition", "offset").alias("action_key"),
        *columns,
    )


def _has_unknown_names() -> Column:
    """Whether `unknown_names` has any: found by sorting, which needs no higher-order function."""
    prefix = sf.lit(names.PREFIX)
    in_order = sf.sort_array(sf.concat(_names_not_ours(), sf.array(prefix)))
    after_prefix = (sf.array_position(in_order, prefix) + 1).cast("int")
    return sf.try_element_at(in_order, after_prefix).startswith(prefix)


def unknown_names() -> Column:
    """Names under our prefix that are none of ours."""
    return sf.filter(_names_not_ours(), lambda name: name.startswith(names.PREFIX))


def _names_not_ours() -> Column:
    known = (*names.REQUEST_HEADERS, *names.STALE_HEADERS)
    return sf.array_except(sf.col("headers.key"), sf.array(*map(sf.lit, known)))


def kept_headers() -> Column:
    """The request's headers without traces of an earlier delivery or rejection."""
    without = sf.filter("headers", lambda header: ~header["key"].isin(*names.STALE_HEADERS))
    return sf.when(sf.col("odd"), without).otherwise(sf.col("headers"))


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
    is_short = sf.octet_length(topic) <= _MAX_TOPIC_BYTES
    return is_short & topic.rlike(_TOPIC) & ~topic.isin(".", "..")


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
