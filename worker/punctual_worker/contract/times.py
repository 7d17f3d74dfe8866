"""Times as the contract writes them."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""The beginning of year 1 and the end of year 9999: what every date library can hold."""
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_SHORT_DURATION: Final = re.compile(r"(\d+)(ms|[smhd])")
_ISO_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d+))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def format_ms(ms: int) -> str:
    """ISO 8601 with milliseconds, UTC: `2026-11-18T20:00:00.000Z`."""
    minutes, rest = divmod(ms, 60_000)
    return f"{_format_minute(minutes)}{rest // 1_000:02d}.{rest % 1_000:03d}Z"


@lru_cache(maxsize=16_384)
def _format_minute(minutes: int) -> str:
    """Those of a week and more are remembered: making one takes ten times as long as the rest."""
    return (_EPOCH + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:").zfill(17)


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def duration_ms(text: str) -> int | None:
    """A duration that intake has found good, rounded up to milliseconds; None if it is none."""
    if short := _SHORT_DURATION.fullmatch(text):
        return int(short[1]) * _UNITS_MS[short[2]]
    iso = _ISO_DURATION.fullmatch(text)
    if iso is None:
        return None
    *whole, fraction = iso.groups()
    ms = sum(
        int(number) * _UNITS_MS[unit]
        for number, unit in zip(whole, ("w", "d", "h", "m", "s"), strict=True)
        if number
    )
    return ms + -(-int((fraction or "0").ljust(9, "0")) // 1_000_000)
