"""Times as the contract writes them."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def format_ms(ms: int) -> str:
    """ISO 8601 with milliseconds, UTC: `2026-11-18T20:00:00.000Z`."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").zfill(20) + f"{moment.microsecond // 1000:03d}Z"


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
