"""Entries of the timetable, and the records that are made from them. Pure."""

import json
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from punctual_worker.contract import actions, headers, times
from punctual_worker.contract.codes import Code

_PREFIX_CHARS: Final = len(headers.PREFIX)


class LogRecord(NamedTuple):
    """A record of the actions topic."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Entry(NamedTuple):
    """A schedule: when, where to and what."""

    key: bytes
    """Action key."""
    plan: actions.Plan
    user_key: bytes | None
    value: bytes | None
    headers: actions.Headers
    """The request's own headers, with the `x-scheduler-*` ones."""

    @property
    def order(self) -> bytes:
        """Where it stands in the timetable."""
        return actions.order_key(self.plan.due_ms, self.key)


class Rejection(NamedTuple):
    """A request that is not, or not any more, carried out."""

    entry: Entry
    code: Code
    sentence: str
    headers: actions.Headers


class Event(NamedTuple):
    """What history tells about one request."""

    key: bytes
    value: bytes


def read_entry(record: LogRecord) -> Entry:
    """Entry of an action that is not a tombstone; `InvalidPlanError` if it is not one of ours."""
    request_headers, user_key, raw_plan = actions.split_action_headers(record.headers)
    plan = actions.decode_plan(raw_plan)
    value = None if plan.flags and plan.null_value else record.value
    return Entry(record.key, plan, user_key, value, request_headers)


def action_record(entry: Entry) -> tuple[bytes, actions.Headers]:
    """Value and headers of the record that says this entry in the log."""
    return entry.value or b"", actions.action_headers(entry.headers, entry.user_key, entry.plan)


def schedule_id(entry: Entry) -> bytes:
    """Request id, or the request's coordinates where it has none."""
    return entry.plan.request_id.encode() or base_key(entry.key)


def base_key(key: bytes) -> bytes:
    """Action key without the re-arm count."""
    return key.partition(b"#")[0]


def is_own(key: bytes) -> bool:
    """Whether the dispatcher itself wrote the record with this key."""
    return b"#" in key or key == actions.CHECKPOINT_KEY


def same_request(one: Entry, other: Entry) -> bool:
    """Whether two requests ask for the same: then the second is a producer's retry."""
    mine, yours = one.plan, other.plan
    return (
        (
            # Recurring ones have no one time that would tell that their spread differs.
            recurring_spread_ms(one) == recurring_spread_ms(other)
            if mine.cron
            else mine.wanted_ms == yours.wanted_ms
        )
        and mine.cron == yours.cron
        and mine.timezone == yours.timezone
        and mine.misfire == yours.misfire
        and mine.destination == yours.destination
        and mine.partition == yours.partition
        and mine.expires_ms == yours.expires_ms
        and one.user_key == other.user_key
        and one.value == other.value
        and user_headers(one) == user_headers(other)
    )


def user_headers(entry: Entry) -> actions.Headers:
    """The user's headers in their order, without ours."""
    # For each header of each request: a slice takes half the time of `startswith`.
    return [header for header in entry.headers if header[0][:_PREFIX_CHARS] != headers.PREFIX]


def recurring_spread_ms(entry: Entry) -> int:
    """By how much the fires of a recurring schedule are moved, as intake does for single ones."""
    given = dict(entry.headers).get(headers.SPREAD)
    within_ms = times.duration_ms(given.decode()) if given else None
    return zlib.crc32(schedule_id(entry)) % within_ms if within_ms else 0


def source_of(entry: Entry, requests_topic: str) -> bytes:
    """`topic/partition/offset` of the request."""
    key = base_key(entry.key)
    return (entry.plan.source or requests_topic).encode() + key[key.index(b"/") :]


def reject(
    entry: Entry, code: Code, sentence: str, *, requests_topic: str, now_ms: int
) -> Rejection:
    """The rejected record: the request as it was, and why."""
    result = [
        *entry.headers,
        (headers.ERROR_CODE, code.encode()),
        (headers.ERROR, sentence.encode()),
        (headers.SOURCE, source_of(entry, requests_topic)),
        (headers.REJECTED_AT, times.format_ms(now_ms).encode()),
    ]
    return Rejection(entry, code, sentence, result)


def tell(event: str, entry: Entry, *, requests_topic: str, now_ms: int, reason: str = "") -> Event:
    """A history event."""
    content: dict[str, str | int] = {
        "event": event,
        "id": schedule_id(entry).decode(),
        "at": times.format_ms(now_ms),
        "source": source_of(entry, requests_topic).decode(),
    }
    if entry.plan.verb.delivers:
        content["scheduledFor"] = times.format_ms(entry.plan.wanted_ms)
        content["destination"] = entry.plan.destination
    if event == "Delivered":
        content["latenessMs"] = max(now_ms - entry.plan.wanted_ms, 0)
    if reason:
        content["reason"] = reason
    return Event(schedule_id(entry), json.dumps(content, ensure_ascii=False).encode())
