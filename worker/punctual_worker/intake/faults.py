"""What is wrong with a request: codes and sentences. Columns in, Columns out. Pure.

Each fault is a code, a condition over the columns of `requests`, and a sentence that names the
header, the value given (shortened) and what is wanted. Headers that a CANCEL, PAUSE or RESUME
does not use are not looked at: producers reuse their headers. Where the action itself cannot be
told, only what holds for every action is judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import Verb
from punctual_worker.contract.codes import Code
from punctual_worker.contract.times import LAST_MS
from punctual_worker.intake.requests import raw, there, unknown_names
from punctual_worker.intake.rules import Rules

_SHOWN_CHARS: Final = 80
_SHOWN_NAMES: Final = 5
_SHOWN_BYTES: Final = 20

_ISO_TIME: Final = "an ISO 8601 time such as 2026-11-18T20:00:00.000Z"
_DURATION: Final = "a duration such as PT15M, P1DT2H, 250ms, 90s, 15m, 2h or 1d"
_WANTED: Final = {
    names.ACTION: "ADD, REPLACE, CANCEL, PAUSE or RESUME",
    names.DELIVER_TO: "a topic name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
    names.DELIVER_AT: _ISO_TIME,
    names.DELAY: _DURATION,
    names.CRON: "a cron expression of five or six fields, such as '0 9 * * MON-FRI'",
    names.TIMEZONE: "the name of a time zone, such as Europe/Berlin",
    names.REQUEST_ID: "1 to 255 bytes of UTF-8 text",
    names.DELIVER_PARTITION: "a partition number from 0 to 2147483647",
    names.EXPIRES_AT: _ISO_TIME,
    names.SPREAD: _DURATION,
    names.MISFIRE: "once, all or skip",
}
_ALWAYS_READ: Final = (names.ACTION, names.REQUEST_ID)
_EPOCH_LOOK: Final = r"\A[0-9]+\z"


@dataclass(frozen=True)
class Fault:
    """One thing that may be wrong; `condition` is never null."""

    code: Code
    condition: Column
    sentence: Column


def is_timed() -> Column:
    """Whether the request is one that asks for a delivery."""
    timed = [verb.value for verb in Verb if verb.delivers]
    return sf.coalesce(sf.col("verb").isin(*timed), sf.lit(False))


def is_allowed(rules: Rules) -> Column:
    """Whether the (legal) destination may be delivered to; null when there is none."""
    destination = sf.col("destination")
    allowed = ~destination.isin(*rules.forbidden_topics)
    return allowed & destination.rlike(rules.destinations_regex) if rules.destinations else allowed


def is_too_far(rules: Rules) -> Column:
    """Whether the due time is beyond the horizon, counted from the record's own timestamp.

    Not from the clock: a request that is taken in twice must be judged the same both times.
    """
    beyond = sf.col("due_ms") - sf.greatest("ts_ms", sf.lit(0)) > rules.horizon_ms
    return ((sf.col("ts_ms") >= 0) & beyond) | (sf.col("due_ms") > LAST_MS)


def describe(faults: Sequence[Fault]) -> tuple[Column, Column]:
    """All codes, comma-separated and each once, and all sentences, of the faults that hold."""
    conditions: dict[Code, Column] = {}
    for fault in faults:
        before = conditions.get(fault.code)
        conditions[fault.code] = fault.condition if before is None else before | fault.condition
    codes = [sf.when(condition, sf.lit(code.value)) for code, condition in conditions.items()]
    sentences = [sf.when(fault.condition, fault.sentence) for fault in faults]
    return sf.concat_ws(",", *codes), sf.concat_ws(" ", *sentences)


def possible_faults(rules: Rules) -> list[Fault]:
    """Everything that can be wrong with a request, in the order in which it is told."""
    return [
        *_action_faults(),
        *_id_faults(),
        *_destination_faults(rules),
        *_time_faults(rules),
        *_cron_faults(),
        _invalid(Code.INVALID_DELIVER_PARTITION, names.DELIVER_PARTITION, "to_partition"),
        _invalid(Code.INVALID_EXPIRES_AT, names.EXPIRES_AT, "expires_ms"),
        _invalid(Code.INVALID_SPREAD, names.SPREAD, "spread_ms"),
        _too_large(rules),
        *(_not_utf8(name) for name in names.REQUEST_HEADERS),
    ]


def _action_faults() -> list[Fault]:
    listed = sf.concat_ws(
        ", ",
        sf.transform(sf.slice(unknown_names(), 1, _SHOWN_NAMES), _shortened),
        sf.when(sf.size(unknown_names()) > _SHOWN_NAMES, sf.lit("…")),
    )
    return [
        _invalid(Code.UNKNOWN_ACTION, names.ACTION, "verb"),
        Fault(
            Code.UNKNOWN_HEADER,
            sf.col("has_unknown"),
            sf.concat(
                listed,
                sf.lit(": no such request header; want only "),
                sf.lit(", ".join(names.REQUEST_HEADERS) + "."),
            ),
        ),
    ]


def _id_faults() -> list[Fault]:
    needs_id = sf.coalesce(sf.col("verb") != Verb.ADD.value, sf.lit(False))
    return [
        _missing(
            Code.MISSING_REQUEST_ID,
            needs_id & ~there(names.REQUEST_ID),
            f"{names.REQUEST_ID} is missing: every action but ADD wants the id of a request.",
        ),
        _invalid(Code.INVALID_REQUEST_ID, names.REQUEST_ID, "request_id"),
    ]


def _destination_faults(rules: Rules) -> list[Fault]:
    wanted = ", ".join(rules.destinations) or "any topic but the scheduler's and the broker's own"
    return [
        _missing(
            Code.MISSING_DELIVER_TO,
            is_timed() & ~there(names.DELIVER_TO),
            f"{names.DELIVER_TO} is missing: want the destination topic.",
        ),
        _invalid(Code.INVALID_DELIVER_TO, names.DELIVER_TO, "destination"),
        Fault(
            Code.DESTINATION_NOT_ALLOWED,
            is_timed() & ~sf.coalesce(is_allowed(rules), sf.lit(True)),
            sf.concat(_given(names.DELIVER_TO), sf.lit(f", which is not allowed: want {wanted}.")),
        ),
    ]


def _time_faults(rules: Rules) -> list[Fault]:
    three = f"{names.DELIVER_AT}, {names.DELAY} and {names.CRON}"
    no_timestamp = (sf.col("ts_ms") < 0) & sf.col("delay_ms").isNotNull()
    days = rules.horizon_ms // 86_400_000
    return [
        _missing(
            Code.MISSING_DELIVER_AT,
            is_timed() & (sf.col("times") == 0),
            f"{names.DELIVER_AT} is missing: want one of {three}.",
        ),
        _missing(
            Code.CONFLICTING_TIMES,
            is_timed() & (sf.col("times") > 1),
            f"more than one of {three} is there: want exactly one.",
        ),
        _invalid(Code.INVALID_DELIVER_AT, names.DELIVER_AT, "at_ms"),
        _invalid(Code.INVALID_DELAY, names.DELAY, "delay_ms"),
        _missing(
            Code.INVALID_DELAY,
            is_timed() & sf.coalesce(no_timestamp, sf.lit(False)),
            f"{names.DELAY} counts from the record's timestamp, and it has none: want a timestamp.",
        ),
        Fault(
            Code.DELIVER_AT_TOO_FAR,
            is_timed() & sf.coalesce(is_too_far(rules), sf.lit(False)),
            sf.concat(
                sf.when(there(names.DELAY), _given(names.DELAY)).otherwise(
                    _given(names.DELIVER_AT)
                ),
                sf.lit(f", which is too far ahead: want at most {days} days (check the unit)."),
            ),
        ),
    ]


def _cron_faults() -> list[Fault]:
    no_cron = is_timed() & ~there(names.CRON)
    only = f"is there without {names.CRON}: want both or neither."
    return [
        _invalid(Code.INVALID_CRON, names.CRON, "cron"),
        _invalid(Code.INVALID_CRON, names.MISFIRE, "misfire"),
        _missing(Code.INVALID_CRON, no_cron & there(names.MISFIRE), f"{names.MISFIRE} {only}"),
        _invalid(Code.INVALID_TIMEZONE, names.TIMEZONE, "timezone"),
        _missing(
            Code.INVALID_TIMEZONE, no_cron & there(names.TIMEZONE), f"{names.TIMEZONE} {only}"
        ),
    ]


def _too_large(rules: Rules) -> Fault:
    return Fault(
        Code.TOO_LARGE,
        ~sf.col("fits"),
        sf.concat(
            sf.lit("key, value and headers take "),
            sf.col("request_bytes").cast("string"),
            sf.lit(f" bytes, too many for an action record of at most {rules.max_action_bytes}."),
        ),
    )


def _missing(code: Code, condition: Column, sentence: str) -> Fault:
    return Fault(code, condition, sf.lit(sentence))


def _invalid(code: Code, name: str, parsed: str) -> Fault:
    """The header is there and is text, but nothing could be made of it."""
    is_text = sf.coalesce(sf.is_valid_utf8(raw(name)), sf.lit(True))
    condition = _is_read(name) & there(name) & sf.col(parsed).isNull() & is_text
    return Fault(
        code, condition, sf.concat(_given(name), sf.lit(f": want {_WANTED[name]}."), _hint(name))
    )


def _hint(name: str) -> Column:
    if name not in (names.DELIVER_AT, names.EXPIRES_AT):
        return sf.lit("")
    looks_like_epoch = raw(name).rlike(_EPOCH_LOOK)
    hint = f" Digits alone are not taken: seconds or milliseconds? (in {name})"
    return sf.when(looks_like_epoch, sf.lit(hint)).otherwise(sf.lit(""))


def _not_utf8(name: str) -> Fault:
    is_broken = ~sf.coalesce(sf.is_valid_utf8(raw(name)), sf.lit(True))
    shown = sf.hex(sf.substring(raw(name).cast("binary"), 1, _SHOWN_BYTES))
    return Fault(
        Code.NOT_UTF8,
        _is_read(name) & is_broken,
        sf.concat(
            sf.lit(f"{name} is not UTF-8 text (bytes "),
            shown,
            sf.when(sf.octet_length(raw(name)) > _SHOWN_BYTES, sf.lit("…")).otherwise(sf.lit("")),
            sf.lit(f"): want {_WANTED[name]}."),
        ),
    )


def _is_read(name: str) -> Column:
    return sf.lit(True) if name in _ALWAYS_READ else is_timed()


def _given(name: str) -> Column:
    return shown(name, raw(name))


def shown(name: str, value: Column) -> Column:
    """The beginning of a sentence: what was given under a name."""
    described = (
        sf.when(value.isNull(), sf.lit(" has a null value"))
        .when(value == "", sf.lit(" is empty"))
        .otherwise(sf.concat(sf.lit(" is '"), _shortened(value), sf.lit("'")))
    )
    return sf.concat(sf.lit(name), described)


def _shortened(text: Column) -> Column:
    return sf.when(
        sf.length(text) > _SHOWN_CHARS, sf.concat(sf.substring(text, 1, _SHOWN_CHARS), sf.lit("…"))
    ).otherwise(text)
