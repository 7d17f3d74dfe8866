"""Requests as the contract writes them, for producers in Python. Pure, no I/O.

What a request may say is judged by intake alone: what is wrong comes back as a rejection.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict

from punctual_worker.contract import headers as names
from punctual_worker.contract.times import format_ms, to_ms
from punctual_worker.errors import PunctualError

Headers = Sequence[tuple[str, bytes | None]]


class RequestError(PunctualError):
    """A request cannot be built or produced."""


@dataclass(frozen=True)
class Request:
    """What is produced to the requests topic."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Wanted(TypedDict, total=False):
    """What a delivery request may say beside destination and value."""

    deliver_at: datetime | str | None
    delay: timedelta | str | None
    cron: str | None
    timezone: str | None
    misfire: Literal["once", "all", "skip"] | None
    request_id: str | None
    key: bytes | None
    headers: Headers
    partition: int | None
    expires_at: datetime | str | None
    spread: timedelta | str | None


def delivery_request(
    to: str,
    value: bytes | None,
    *,
    action: Literal["ADD", "REPLACE"] = "ADD",
    deliver_at: datetime | str | None = None,
    delay: timedelta | str | None = None,
    cron: str | None = None,
    timezone: str | None = None,
    misfire: Literal["once", "all", "skip"] | None = None,
    request_id: str | None = None,
    key: bytes | None = None,
    headers: Headers = (),
    partition: int | None = None,
    expires_at: datetime | str | None = None,
    spread: timedelta | str | None = None,
) -> Request:
    """A request to deliver `value` to the topic `to`, at a time, after a delay, or again and again.

    Text is taken as it is, a datetime without a zone as UTC.
    """
    if sum(one is not None for one in (deliver_at, delay, cron)) != 1:
        raise RequestError("Exactly one of deliver_at, delay and cron is wanted.")
    wanted = (
        (names.ACTION, action),
        (names.DELIVER_TO, to),
        (names.DELIVER_AT, _moment(deliver_at)),
        (names.DELAY, _duration(delay)),
        (names.CRON, cron),
        (names.TIMEZONE, timezone),
        (names.MISFIRE, misfire),
        (names.REQUEST_ID, request_id),
        (names.DELIVER_PARTITION, None if partition is None else str(partition)),
        (names.EXPIRES_AT, _moment(expires_at)),
        (names.SPREAD, _duration(spread)),
    )
    return Request(key, value, [*headers, *_encoded(wanted)])


def cancel_request(request_id: str, *, key: bytes | None = None) -> Request:
    """A request to forget a pending one; give the key that was given then, for the order's sake."""
    return _request_about(request_id, action="CANCEL", key=key)


def pause_request(request_id: str, *, key: bytes | None = None) -> Request:
    """A request to hold a pending one back, also when it falls due, until it is resumed."""
    return _request_about(request_id, action="PAUSE", key=key)


def resume_request(request_id: str, *, key: bytes | None = None) -> Request:
    """A request to let a paused one go on."""
    return _request_about(request_id, action="RESUME", key=key)


def _request_about(request_id: str, *, action: str, key: bytes | None) -> Request:
    return Request(key, None, _encoded(((names.ACTION, action), (names.REQUEST_ID, request_id))))


def _encoded(wanted: Iterable[tuple[str, str | None]]) -> list[tuple[str, bytes | None]]:
    return [(name, text.encode()) for name, text in wanted if text is not None]


def _moment(moment: datetime | str | None) -> str | None:
    if not isinstance(moment, datetime):
        return moment
    return format_ms(to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC)))


def _duration(duration: timedelta | str | None) -> str | None:
    if not isinstance(duration, timedelta):
        return duration
    return f"{duration // timedelta(milliseconds=1)}ms"
