"""What is wrong with a request: codes and sentences. Columns in, Columns out. Pure.

Each fault is a code, a condition over the columns of `requests`, and a sentence that names the
header, the value given (shortened) and what is wanted. Headers that a CANCEL does not use are not
looked at: producers reuse their headers. Where the action itself cannot be told, only what holds
for every action is judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import Verb
from punctual_worker.contract.codes import Code
from punctual_worker.intake import times
from punctual_worker.intake.requests import raw, there
from punctual_worker.intake.rules import Rules

_SHOWN_CHARS: Final = 80
_SHOWN_NAMES: Final = 5
_SHOWN_BYTES: Final = 20

_ISO_TIME: Final = "an ISO 8601 time such as 2026-11-18T20:00:00.000Z"
_DURATION: Final = "a duration such as PT15M, P1DT2H, 250ms, 90s, 15m, 2h or 1d"
_WANTED: Final = {
    names.ACTION: "ADD, REPLACE or CANCEL",
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
    return F.coalesce(F.col("verb") != Verb.CANCEL.value, F.lit(False))


def is_allowed(rules: Rules) -> Column:
    """Whether the (legal) destination may be delivered to; null when there is none."""
    destination = F.col("destination")
    allowed = ~destination.isin(*rules.forbidden_topics)
    return allowed & destination.rlike(rules.destinations_regex) if rules.destinations else allowed


def is_too_far(rules: Rules) -> Column:
    """Whether the due time is beyond the horizon, counted from the record's own timestamp.

    Not from the clock: a request that is taken in twice must be judged the same both times.
    """
    beyond = F.col("due_ms") - F.greatest("ts_ms", F.lit(0)) > rules.horizon_ms
    return ((F.col("ts_ms") >= 0) & beyond) | (F.col("due_ms") > times.LAST_MS)


def describe(faults: Sequence[Fault]) -> tuple[Column, Column]:
    """All codes, comma-separated and each once, and all sentences, of the faults that hold."""
    conditions: dict[Code, Column] = {}
    for fault in faults:
        before = conditions.get(fault.code)
        conditions[fault.code] = fault.condition if before is None else before | fault.condition
    codes = [F.when(condition, F.lit(code.value)) for code, condition in conditions.items()]
    sentences = [F.when(fault.condition, fault.sentence) for fault in faults]
    return F.concat_ws(",", *codes), F.concat_ws(" ", *sentences)


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
    listed = F.concat_ws(
        ", ",
        F.transform(F.slice("unknown", 1, _SHOWN_NAMES), _shortened),
        F.when(F.size("unknown") > _SHOWN_NAMES, F.lit("…")),
    )
    return [
        _invalid(Code.UNKNOWN_ACTION, names.ACTION, "verb"),
        Fault(
            Code.UNKNOWN_HEADER,
            F.col("unknown").isNotNull(),
            F.concat(
                listed,
                F.lit(": no such request header; want only "),
                F.lit(", ".join(names.REQUEST_HEADERS) + "."),
            ),
        ),
    ]


def _id_faults() -> list[Fault]:
    needs_id = F.coalesce(F.col("verb") != Verb.ADD.value, F.lit(False))
    return [
        _missing(
            Code.MISSING_REQUEST_ID,
            needs_id & ~there(names.REQUEST_ID),
            f"{names.REQUEST_ID} is missing: REPLACE and CANCEL want the id of a request.",
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
            is_timed() & ~F.coalesce(is_allowed(rules), F.lit(True)),
            F.concat(_given(names.DELIVER_TO), F.lit(f", which is not allowed: want {wanted}.")),
        ),
    ]


def _time_faults(rules: Rules) -> list[Fault]:
    three = f"{names.DELIVER_AT}, {names.DELAY} and {names.CRON}"
    no_timestamp = (F.col("ts_ms") < 0) & F.col("delay_ms").isNotNull()
    days = rules.horizon_ms // 86_400_000
    return [
        _missing(
            Code.MISSING_DELIVER_AT,
            is_timed() & (F.col("times") == 0),
            f"{names.DELIVER_AT} is missing: want one of {three}.",
        ),
        _missing(
            Code.CONFLICTING_TIMES,
            is_timed() & (F.col("times") > 1),
            f"more than one of {three} is there: want exactly one.",
        ),
        _invalid(Code.INVALID_DELIVER_AT, names.DELIVER_AT, "at_ms"),
        _invalid(Code.INVALID_DELAY, names.DELAY, "delay_ms"),
        _missing(
            Code.INVALID_DELAY,
            is_timed() & F.coalesce(no_timestamp, F.lit(False)),
            f"{names.DELAY} counts from the record's timestamp, and it has none: want a timestamp.",
        ),
        Fault(
            Code.DELIVER_AT_TOO_FAR,
            is_timed() & F.coalesce(is_too_far(rules), F.lit(False)),
            F.concat(
                F.when(there(names.DELAY), _given(names.DELAY)).otherwise(_given(names.DELIVER_AT)),
                F.lit(f", which is too far ahead: want at most {days} days (check the unit)."),
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
        ~F.col("fits"),
        F.concat(
            F.lit("key, value and headers take "),
            F.col("request_bytes").cast("string"),
            F.lit(f" bytes, too many for an action record of at most {rules.max_action_bytes}."),
        ),
    )


def _missing(code: Code, condition: Column, sentence: str) -> Fault:
    return Fault(code, condition, F.lit(sentence))


def _invalid(code: Code, name: str, parsed: str) -> Fault:
    """The header is there and is text, but nothing could be made of it."""
    is_text = F.coalesce(F.is_valid_utf8(raw(name)), F.lit(True))
    condition = _is_read(name) & there(name) & F.col(parsed).isNull() & is_text
    return Fault(
        code, condition, F.concat(_given(name), F.lit(f": want {_WANTED[name]}."), _hint(name))
    )


def _hint(name: str) -> Column:
    if name not in (names.DELIVER_AT, names.EXPIRES_AT):
        return F.lit("")
    looks_like_epoch = raw(name).rlike(_EPOCH_LOOK)
    hint = f" Digits alone are not taken: seconds or milliseconds? (in {name})"
    return F.when(looks_like_epoch, F.lit(hint)).otherwise(F.lit(""))


def _not_utf8(name: str) -> Fault:
    is_broken = ~F.coalesce(F.is_valid_utf8(raw(name)), F.lit(True))
    shown = F.hex(F.substring(raw(name).cast("binary"), 1, _SHOWN_BYTES))
    return Fault(
        Code.NOT_UTF8,
        _is_read(name) & is_broken,
        F.concat(
            F.lit(f"{name} is not UTF-8 text (bytes "),
            shown,
            F.when(F.octet_length(raw(name)) > _SHOWN_BYTES, F.lit("…")).otherwise(F.lit("")),
            F.lit(f"): want {_WANTED[name]}."),
        ),
    )


def _is_read(name: str) -> Column:
    return F.lit(True) if name in _ALWAYS_READ else is_timed()


def _given(name: str) -> Column:
    value = raw(name)
    described = (
        F.when(value.isNull(), F.lit(" has a null value"))
        .when(value == "", F.lit(" is empty"))
        .otherwise(F.concat(F.lit(" is '"), _shortened(value), F.lit("'")))
    )
    return F.concat(F.lit(name), described)


def _shortened(text: Column) -> Column:
    return F.when(
        F.length(text) > _SHOWN_CHARS, F.concat(F.substring(text, 1, _SHOWN_CHARS), F.lit("…"))
    ).otherwise(text)
