"""Times and durations of the contract as Spark expressions. Text column in, milliseconds out.

The grammar is ours and stricter than Spark's casts, so that their leniency never shows. Whatever
is not of the grammar, or names no real moment, is null; nothing here throws, whatever the bytes.
The session's time zone must be UTC (see `session`).

Instant: `YYYY-MM-DDThh:mm[:ss[.fraction]][zone]`
- year 0001 to 9999, hour 00 to 23 (no 24:00), second 00 to 59 (no leap second)
- `t` and `z` may be lower case; the fraction has 1 to 9 digits after `.` or `,`
- zone: `Z`, `±hh:mm`, `±hhmm` or `±hh`, at most 18:00 either way; none means UTC
- the first and the last day of those years only where no zone and no rounding leads out of them

Duration, either of
- ISO 8601: `P[nW][nD][T[nH][nM][n[.fraction]S]]`, in any letter case, at least one part, whole
  numbers but for the seconds; years and months are refused because their length varies
- `n` and a unit in lower case: `ms`, `s`, `m`, `h`, `d`; upper case is refused because `1M` might
  mean a month

Numbers have at most 10 digits (15 before `ms`), so no sum can overflow a long. What is finer than
a millisecond is rounded up: nothing may ever be early.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

_INSTANT: Final = (
    r"\A(?!0000|0001-01-01.*\+|9999-12-31[Tt].*-|9999-12-31[Tt]23:59:59[.,]999[0-9]*[1-9])"
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,9})?)?"
    r"(?:[Zz]|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))?\z"
)
_DIGIT: Final = "[0123456789]"
_USUAL: Final = "".join(
    (
        rf"\A[12]{_DIGIT * 3}-{_DIGIT * 2}-{_DIGIT * 2}T{_DIGIT * 2}:{_DIGIT * 2}:{_DIGIT * 2}",
        rf"(?:\.{_DIGIT}{_DIGIT}?{_DIGIT}?)?(?:Z|[+-](?:0{_DIGIT}|1[01234567]):[012345]{_DIGIT})?\z",
    )
)
"""The usual spellings, a part of `_INSTANT` in which Spark's cast finds every fault that is left.

A class whose characters are all written out is looked up in a table, and without repetitions there
is nothing to be counted: half the time of the same in short."""
_FINER_THAN_MS: Final = r"\.[0-9]{3}[0-9]*[1-9]"
_TO_THE_MINUTE: Final = 16
"""Characters of `YYYY-MM-DDThh:mm`."""
_TO_THE_MS: Final = 23

_SHORT: Final = r"\A([0-9]{1,10}(?=[smhd]\z)|[0-9]{1,15}(?=ms\z))(ms|[smhd])\z"
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ISO: Final = (
    r"(?i)\AP(?!\z)(?:([0-9]{1,10})W)?(?:([0-9]{1,10})D)?"
    r"(?:T(?!\z)(?:([0-9]{1,10})H)?(?:([0-9]{1,10})M)?"
    r"(?:([0-9]{1,10})(?:[.,]([0-9]{1,9}))?S)?)?\z"
)
_ISO_PARTS_MS: Final = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000)
"""Length of one unit of each group of `_ISO`, in order; the group after them is the fraction."""


def instant_ms(text: Column) -> Column:
    """Milliseconds since the epoch of an instant; null if it is none."""
    unusual = sf.when(text.rlike(_INSTANT), _parsed_ms(sf.translate(text, "tz,", "TZ.")))
    # Spark takes its time for a zone, and knows this one without being told.
    ends_at_ms = (sf.octet_length(text) == _TO_THE_MS + 1) & text.endswith("Z")
    told = sf.when(ends_at_ms, sf.substring(text, 1, _TO_THE_MS)).otherwise(text)
    return sf.when(text.rlike(_USUAL), sf.unix_millis(told.try_cast("timestamp"))).when(
        text.isNotNull(), unusual
    )


def _parsed_ms(text: Column) -> Column:
    # Spark's cast knows no zone after minutes without seconds.
    with_seconds = sf.when(
        (sf.length(text) > _TO_THE_MINUTE) & (sf.substring(text, _TO_THE_MINUTE + 1, 1) != ":"),
        sf.concat(
            sf.substring(text, 1, _TO_THE_MINUTE),
            sf.lit(":00"),
            sf.substring(text, _TO_THE_MINUTE + 1, 6),
        ),
    ).otherwise(text)
    rounded_up = sf.when((sf.length(text) > _TO_THE_MS) & text.rlike(_FINER_THAN_MS), 1).otherwise(
        0
    )
    return sf.unix_millis(with_seconds.try_cast("timestamp")) + rounded_up


def duration_ms(text: Column) -> Column:
    """Milliseconds of a duration; null if it is none."""
    parsed = sf.when(text.rlike(_SHORT), _short_ms(text)).when(text.rlike(_ISO), _iso_ms(text))
    return sf.when(text.isNotNull(), parsed)


def _short_ms(text: Column) -> Column:
    unit = sf.regexp_extract(text, _SHORT, 2)
    factor = sf.lit(None).cast("bigint")
    for name, milliseconds in _UNIT_MS.items():
        factor = sf.when(unit == name, milliseconds).otherwise(factor)
    return sf.regexp_extract(text, _SHORT, 1).try_cast("bigint") * factor


def _iso_ms(text: Column) -> Column:
    total = sf.lit(0).cast("bigint")
    for group, milliseconds in enumerate(_ISO_PARTS_MS, start=1):
        number = sf.regexp_extract(text, _ISO, group).try_cast("bigint")
        total = total + sf.coalesce(number, sf.lit(0)) * sf.lit(milliseconds).cast("bigint")
    fraction = sf.regexp_extract(text, _ISO, len(_ISO_PARTS_MS) + 1)
    nanoseconds = sf.rpad(fraction, 9, "0").try_cast("bigint")
    return total + sf.ceil(nanoseconds / 1_000_000)
