"""From records of the three logs to rows of the view. Pure.

Only what is listed and searched becomes a row; key, value and headers stay in the log and are read
from there by partition and offset, so that ten million rows stay small.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from punctual_worker.contract import actions, headers
from punctual_worker.contract.times import to_ms
from punctual_worker.dispatch.restoring import TOMBSTONE_DUE

RecordHeaders = Sequence[tuple[str, bytes | None]]
_TEXT_LIMIT: Final = 2_000
"""Longest text of a rejection that is kept in the view; the log has all of it."""


class PendingRow(NamedTuple):
    """A schedule that waits. Times in milliseconds since the epoch."""

    due: int
    action_key: str
    id: str | None
    """The request id; None where the request had none."""
    destination: str
    partition: int
    offset: int
    size: int | None
    """Bytes of the value; None for a null value."""
    wanted: int
    attempt: int
    expires: int | None
    cron: str
    timezone: str

    @property
    def paused(self) -> bool:
        """Whether it waits for RESUME: such a one has no due time but that far beyond."""
        return self.due >= actions.NEVER_MS

    @property
    def told_due(self) -> int:
        """When it is due; of a paused one, when it was to be."""
        return self.wanted if self.paused else self.due

    @property
    def schedule_id(self) -> str:
        """What history calls it: the request id, else the request's coordinates."""
        return self.id or self.action_key.partition("#")[0]


class Removal(NamedTuple):
    """A tombstone: this schedule is gone."""

    due: int
    action_key: str


class RejectionRow(NamedTuple):
    """A rejected request."""

    partition: int
    offset: int
    at: int
    id: str | None
    codes: str
    reason: str
    source: str
    destination: str
    size: int | None


class EventRow(NamedTuple):
    """An event of a schedule's story."""

    partition: int
    offset: int
    id: str
    at: int
    event: str
    content: str
    """The event as JSON, as it stands in the log."""


def read_action(
    partition: int, offset: int, key: bytes, value: bytes | None, record_headers: RecordHeaders
) -> PendingRow | Removal | None:
    """What an action means for the view; None for what nobody waits for (a CANCEL, a stranger)."""
    if value is None:
        return _read_tombstone(key, record_headers)
    parsed = actions.parse_action_key(key)
    if parsed is None or not record_headers or record_headers[-1][0] != headers.ACTION_PLAN:
        return None
    try:
        plan = actions.decode_plan(record_headers[-1][1] or b"")
    except actions.InvalidPlanError:
        return None
    if not plan.verb.delivers:
        return None
    return PendingRow(
        due=max(plan.due_ms, 0),
        action_key=key.decode("ascii"),
        id=plan.request_id or None,
        destination=plan.destination,
        partition=partition,
        offset=offset,
        size=None if plan.null_value else len(value),
        wanted=plan.wanted_ms,
        attempt=plan.attempt,
        expires=plan.expires_ms,
        cron=plan.cron,
        timezone=plan.timezone,
    )


def has_fired(row: PendingRow, *, position: int, cursor: tuple[int, str]) -> bool:
    """Whether the dispatcher's checkpoint says so, though the tombstone is still to come.

    What intake wrote counts only once the dispatcher has taken it in (`position`).
    """
    taken_in = row.offset < position or "#" in row.action_key
    return taken_in and (row.due, row.action_key) <= cursor


def read_rejection(
    partition: int,
    offset: int,
    timestamp_ms: int,
    value: bytes | None,
    record_headers: RecordHeaders,
) -> RejectionRow:
    """A row for a rejected request, whatever is in it."""
    last = dict(record_headers)

    def text(name: str) -> str:
        return (last.get(name) or b"").decode(errors="replace")[:_TEXT_LIMIT]

    return RejectionRow(
        partition=partition,
        offset=offset,
        at=_moment_ms(text(headers.REJECTED_AT), otherwise=timestamp_ms),
        id=text(headers.REQUEST_ID) or None,
        codes=text(headers.ERROR_CODE),
        reason=text(headers.ERROR),
        source=text(headers.SOURCE),
        destination=text(headers.DELIVER_TO),
        size=None if value is None else len(value),
    )


def read_event(
    partition: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> EventRow | None:
    """A row for a history event; None if it is not one of ours."""
    try:
        content = json.loads(value or b"")
        event, schedule_id = str(content["event"]), str(content["id"])
    except (ValueError, KeyError, TypeError):
        return None
    at = _moment_ms(str(content.get("at", "")), otherwise=timestamp_ms)
    return EventRow(partition, offset, schedule_id, at, event, json.dumps(content))


def _read_tombstone(key: bytes, record_headers: RecordHeaders) -> Removal | None:
    for name, content in record_headers:
        if name == TOMBSTONE_DUE and content is not None:
            try:
                return Removal(int(content), key.decode("ascii"))
            except ValueError:
                return None
    return None


def _moment_ms(text: str, *, otherwise: int) -> int:
    try:
        return to_ms(datetime.fromisoformat(text))
    except (ValueError, TypeError):  # a moment without a zone cannot be compared
        return otherwise
