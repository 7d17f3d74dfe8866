"""Requests made from what is pending or was rejected. Pure.

The content is taken over byte for byte; only the time, or what the user has edited, is new. The
record key stays too: Kafka keeps the order of requests for one id only under the same key.
"""

from collections.abc import Sequence

from punctual_worker.client import (
    Request,
    cancel_request,
    delivery_request,
    pause_request,
    resume_request,
)
from punctual_worker.console.records import Request as Standing
from punctual_worker.contract import headers as names
from punctual_worker.contract.times import format_ms

Headers = Sequence[tuple[str, bytes | None]]


def moved(standing: Standing, *, deliver_at_ms: int) -> Request:
    """REPLACE: the same message at another time."""
    plan = standing.plan
    return delivery_request(
        plan.destination,
        standing.value,
        action="REPLACE",
        deliver_at=format_ms(deliver_at_ms),
        request_id=plan.request_id,
        key=standing.key,
        headers=user_headers(standing.headers),
        partition=plan.partition,
        expires_at=None if plan.expires_ms is None else format_ms(plan.expires_ms),
    )


def recurring(
    to: str,
    value: bytes | None,
    *,
    action: str,
    cron: str,
    timezone: str | None,
    misfire: str | None,
    request_id: str | None,
    key: bytes | None,
    headers: Headers,
    partition: int | None,
    expires_at: str | None,
    spread: str | None,
) -> Request:
    """A message that is delivered again and again."""
    wanted = (
        (names.ACTION, action),
        (names.DELIVER_TO, to),
        (names.CRON, cron),
        (names.TIMEZONE, timezone),
        (names.MISFIRE, misfire),
        (names.REQUEST_ID, request_id),
        (names.DELIVER_PARTITION, None if partition is None else str(partition)),
        (names.EXPIRES_AT, expires_at),
        (names.SPREAD, spread),
    )
    ours = [(name, text.encode()) for name, text in wanted if text is not None]
    return Request(key, value, [*headers, *ours])


def copy_now(standing: Standing, *, now_ms: int) -> Request:
    """ADD without an id: the same message once more, at once; the standing one stays."""
    plan = standing.plan
    return delivery_request(
        plan.destination,
        standing.value,
        deliver_at=format_ms(now_ms),
        key=standing.key,
        headers=user_headers(standing.headers),
        partition=plan.partition,
    )


def cancelled(standing: Standing) -> Request:
    """CANCEL, under the key that was given then."""
    return cancel_request(standing.plan.request_id, key=standing.key)


def paused(standing: Standing) -> Request:
    """PAUSE, under the key that was given then."""
    return pause_request(standing.plan.request_id, key=standing.key)


def resumed(standing: Standing) -> Request:
    """RESUME, under the key that was given then."""
    return resume_request(standing.plan.request_id, key=standing.key)


def resent(key: bytes | None, value: bytes | None, headers: Headers) -> Request:
    """A rejected request once more, without the traces of its rejection."""
    kept = [header for header in headers if header[0] not in names.STALE_HEADERS]
    return Request(key, value, kept)


def user_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The user's own, in their order."""
    return [header for header in headers if not header[0].startswith(names.PREFIX)]
