"""Requests made from what is pending or was rejected. Pure.

The content is taken over byte for byte; only the time, or what the user has edited, is new. The
record key stays too: Kafka keeps the order of requests for one id only under the same key.
"""

from collections.abc import Sequence

from punctual_worker.client import Request, cancel_request, delivery_request
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


def resent(key: bytes | None, value: bytes | None, headers: Headers) -> Request:
    """A rejected request once more, without the traces of its rejection."""
    kept = [header for header in headers if header[0] not in names.STALE_HEADERS]
    return Request(key, value, kept)


def user_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The user's own, in their order."""
    return [header for header in headers if not header[0].startswith(names.PREFIX)]
