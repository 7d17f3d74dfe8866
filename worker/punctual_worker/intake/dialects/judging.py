"""What holds for the requests of every dialect: parsed, judged, planned. Columns in and out. Pure.

A dialect gives, beside the record itself:

- `verb`: REPLACE or CANCEL; null where the record cannot be read at all
- `to_text`, `time_text`, `partition_text`: destination, time and partition as they were given
- `is_placed`: whether a partition key among its headers chooses the partition
- `at_ms`: the time, if it is one
- `out_key`, `out_value`, `out_headers`: what is to be delivered

and gets the columns that `pipeline` writes records from. The id is the record's key. The action
carries, beside the headers to be delivered, the request in our own contract's headers: should the
dispatcher have to reject it, the rejection is a native request that can be repaired and produced.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import BARE, PLACED, Verb
from punctual_worker.contract.codes import Code
from punctual_worker.contract.times import LAST_MS
from punctual_worker.intake.faults import Fault, describe, is_allowed, is_timed, is_too_far, shown
from punctual_worker.intake.rarely import rarely
from punctual_worker.intake.requests import MAX_ID_BYTES, is_legal_topic, request_bytes
from punctual_worker.intake.rules import Rules
from punctual_worker.intake.sources import Source
from punctual_worker.intake.verdicts import plan_text

_ACTION_ROOM_BYTES: Final = 8192
"""More than the plan, the added headers, the action's key and Kafka's framing can take."""
_PARTITION: Final = r"\A[0-9]{1,10}\z"
_SECONDS: Final = r"\A[0-9]{1,14}\z"
_MILLISECONDS: Final = r"\A[0-9]{1,17}\z"
_LONG_AGO: Final = r"\A-[0-9]{1,19}\z"
_DROPPED: Final = (*names.STALE_HEADERS, names.REQUEST_ID)
"""Traces of our own that a delivered message carries when its consumer schedules it again."""
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
Headers = list[tuple[str, Column]]


@dataclass(frozen=True)
class Words:
    """How a dialect calls things, for the sentences."""

    to: str
    time: str
    time_wanted: str
    partition: str
    readable: str
    """What a record that cannot be read should have been."""


def seconds_ms(text: Column) -> Column:
    """Milliseconds of a number of seconds since 1970; null if it is none."""
    return sf.when(text.rlike(_SECONDS), text.try_cast("bigint") * 1000)


def milliseconds(text: Column) -> Column:
    """A number of milliseconds since 1970, none below 0; null if it is none."""
    return sf.when(text.rlike(_MILLISECONDS), text.try_cast("bigint")).when(
        text.rlike(_LONG_AGO), sf.lit(0).cast("bigint")
    )


def with_record(records: DataFrame, source: Source) -> DataFrame:
    """The records of a source with what every dialect needs to know of them."""
    name_list, values = sf.col("headers.key"), sf.col("headers.value")
    stale = sf.exists(name_list, lambda name: name.startswith(names.PREFIX))
    kept = sf.filter("headers", lambda header: ~header["key"].isin(*names.STALE_HEADERS))
    return records.select(
        *("topic", "partition", "offset", "key", "value"),
        sf.unix_millis("timestamp").alias("ts_ms"),
        sf.when(stale, kept).otherwise(sf.col("headers")).alias("kept"),
        request_bytes(name_list, values).alias("request_bytes"),
        sf.concat_ws("/", sf.lit(source.tag), "partition", "offset").alias("action_key"),
    )


def with_verdict(read: DataFrame, rules: Rules, source: Source, words: Words) -> DataFrame:
    """Adds `accepted`, `hash`, and either `plan` and `added` or `codes` and `sentences`."""
    parsed = _with_parsed(read, rules)
    faults = _possible_faults(rules, words)
    judged = parsed.withColumn("accepted", ~_any(faults))
    codes, sentences = describe(faults)
    refused = ~sf.col("accepted")
    return judged.withColumns(
        {
            "plan": sf.when(
                sf.col("accepted"),
                plan_text(source=source.topic, value="out_value", flags=_flags()),
            ),
            "out_headers": _delivered_headers(),
            "codes": sf.when(refused, rarely(codes)),
            "sentences": sf.when(refused, rarely(sentences)),
        }
    )


def _flags() -> Column:
    is_placed = is_timed() & sf.col("is_placed")
    return sf.when(is_placed, sf.lit(BARE + PLACED)).otherwise(sf.lit(BARE))


def _with_parsed(read: DataFrame, rules: Rules) -> DataFrame:
    id_text = sf.col("key").cast("string")
    id_is_legal = sf.octet_length(id_text).between(1, MAX_ID_BYTES) & sf.is_valid_utf8(id_text)
    partition = sf.col("partition_text")
    asked_partition = sf.when(partition.rlike(_PARTITION), partition.try_cast("int"))
    nothing = sf.lit(None).cast("string")
    foreign = sf.filter(
        "out_headers",
        lambda header: header["key"].startswith(names.PREFIX) & ~header["key"].isin(*_DROPPED),
    )
    return read.withColumns(
        {
            "request_id": sf.when(id_is_legal, id_text),
            "destination": sf.when(is_legal_topic(sf.col("to_text")), sf.col("to_text")),
            "asked_partition": asked_partition,
            # A partition key counts for more, as in Karafka's producer.
            "to_partition": sf.when(~sf.col("is_placed"), asked_partition),
            "due_ms": sf.col("at_ms"),
            "hash": sf.crc32(sf.coalesce(id_text.cast("binary"), sf.lit(b""))),
            "fits": sf.col("request_bytes") + _ACTION_ROOM_BYTES <= rules.max_action_bytes,
            "unknown": sf.transform(foreign, lambda header: header["key"]),
            # Nothing of this can be asked for in a dialect.
            **dict.fromkeys(("expires_ms", "misfire", "cron", "timezone"), nothing),
        }
    )


def _delivered_headers() -> Column:
    """Without traces of our own, then the request in our own words."""
    ours: Headers = [
        (names.ACTION, sf.lit(Verb.REPLACE.name)),
        (names.DELIVER_TO, sf.col("destination")),
        (names.DELIVER_AT, _iso(sf.col("due_ms"))),
        (names.REQUEST_ID, sf.col("request_id")),
    ]
    there = sf.filter("out_headers", lambda header: ~header["key"].isin(*_DROPPED))
    asked = sf.array(*(header(name, text.cast("binary")) for name, text in ours))
    where = header(names.DELIVER_PARTITION, sf.col("to_partition").cast("string").cast("binary"))
    return sf.when(
        is_timed(),
        sf.concat(
            sf.coalesce(there, no_headers()),
            asked,
            sf.when(sf.col("to_partition").isNotNull(), sf.array(where)).otherwise(no_headers()),
        ),
    ).otherwise(sf.col("kept"))


def no_headers() -> Column:
    """What a record without headers has."""
    return sf.array().cast(HEADERS_TYPE)


def header(name: str, value: Column) -> Column:
    """One header of a record."""
    return sf.struct(sf.lit(name).alias("key"), value.alias("value"))


def _iso(ms: Column) -> Column:
    # Spark throws on what a timestamp cannot hold, also where nobody looks at the result.
    within = sf.least(sf.greatest(ms, sf.lit(0)), sf.lit(LAST_MS))
    return sf.date_format(sf.timestamp_millis(within), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _any(faults: list[Fault]) -> Column:
    condition = faults[0].condition
    for fault in faults[1:]:
        condition = condition | fault.condition
    return condition


def _possible_faults(rules: Rules, words: Words) -> list[Fault]:
    timed = is_timed()
    days = rules.horizon_ms // 86_400_000
    allowed = ", ".join(rules.destinations) or "any topic but the scheduler's and the broker's own"
    to, time, partition = (sf.col(name) for name in ("to_text", "time_text", "partition_text"))
    return [
        _fault(Code.UNKNOWN_ACTION, sf.col("verb").isNull(), sf.lit(words.readable)),
        _fault(
            Code.UNKNOWN_HEADER,
            timed & (sf.size("unknown") > 0),
            sf.concat(
                sf.array_join(sf.slice("unknown", 1, 5), ", "),
                sf.lit(": such a header would be taken for ours; want another name."),
            ),
        ),
        *_id_faults(),
        _fault(
            Code.MISSING_DELIVER_TO,
            timed & to.isNull(),
            sf.lit(f"{words.to} is missing: want the destination topic."),
        ),
        _fault(
            Code.INVALID_DELIVER_TO,
            timed & to.isNotNull() & sf.col("destination").isNull(),
            sf.concat(
                shown(words.to, to), sf.lit(": want a topic name of a-z, A-Z, 0-9, '.', '_', '-'.")
            ),
        ),
        _fault(
            Code.DESTINATION_NOT_ALLOWED,
            timed & ~is_allowed(rules),
            sf.concat(shown(words.to, to), sf.lit(f", which is not allowed: want {allowed}.")),
        ),
        _fault(
            Code.MISSING_DELIVER_AT,
            timed & time.isNull(),
            sf.lit(f"{words.time} is missing: want {words.time_wanted}."),
        ),
        _fault(
            Code.INVALID_DELIVER_AT,
            timed & time.isNotNull() & sf.col("at_ms").isNull(),
            sf.concat(shown(words.time, time), sf.lit(f": want {words.time_wanted}.")),
        ),
        _fault(
            Code.DELIVER_AT_TOO_FAR,
            timed & is_too_far(rules),
            sf.concat(
                shown(words.time, time),
                sf.lit(f", which is too far ahead: want at most {days} days (check the unit)."),
            ),
        ),
        _fault(
            Code.INVALID_DELIVER_PARTITION,
            timed & partition.isNotNull() & sf.col("asked_partition").isNull(),
            sf.concat(shown(words.partition, partition), sf.lit(": want a partition's number.")),
        ),
        _fault(
            Code.TOO_LARGE,
            ~sf.col("fits"),
            sf.concat(
                sf.lit("key, value and headers take "),
                sf.col("request_bytes").cast("string"),
                sf.lit(
                    f" bytes, too many for an action record of at most {rules.max_action_bytes}."
                ),
            ),
        ),
    ]


def _id_faults() -> list[Fault]:
    key = sf.col("key")
    is_text = sf.is_valid_utf8(key.cast("string"))
    return [
        _fault(
            Code.MISSING_REQUEST_ID,
            key.isNull(),
            sf.lit("the record has no key: want one, it is the id of the schedule."),
        ),
        _fault(
            Code.INVALID_REQUEST_ID,
            key.isNotNull() & is_text & sf.col("request_id").isNull(),
            sf.concat(
                sf.lit("the record's key, which is the id, takes "),
                sf.octet_length(key).cast("string"),
                sf.lit(f" bytes: want 1 to {MAX_ID_BYTES}."),
            ),
        ),
        _fault(
            Code.NOT_UTF8,
            key.isNotNull() & ~is_text,
            sf.concat(
                sf.lit("the record's key, which is the id, is not UTF-8 text (bytes "),
                sf.hex(sf.substring(key, 1, 20)),
                sf.lit("…): want text."),
            ),
        ),
    ]


def _fault(code: Code, condition: Column, sentence: Column) -> Fault:
    return Fault(code, sf.coalesce(condition, sf.lit(False)), sentence)
