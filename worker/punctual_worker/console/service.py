"""What the console can do, for API and pages alike. Knows nothing of HTTP."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from punctual_worker.client import Request, RequestError, delivery_request
from punctual_worker.console import payloads, requests
from punctual_worker.console.bulk import Bulk
from punctual_worker.console.checkpoints import Checkpoints
from punctual_worker.console.following import Follower, Lag
from punctual_worker.console.models import CreateBody, DeliveryBody, HeaderBody, ResendBody
from punctual_worker.console.parts import PartsWatch
from punctual_worker.console.queries import Queries
from punctual_worker.console.records import Record, Records, request_of
from punctual_worker.console.records import Request as Standing
from punctual_worker.console.rows import PendingRow, RejectionRow, read_rejection
from punctual_worker.console.stories import Stories
from punctual_worker.console.writes import Author, Effect, Writes
from punctual_worker.console.writes import Verb as WriteVerb
from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.contract.times import format_ms, to_ms
from punctual_worker.dispatch import recurrence
from punctual_worker.settings import Settings

_REF: Final = re.compile(r"(\d{1,15})\.([0-9a-f]{1,8}/\d{1,10}/\d{1,19}(#\d{1,10})?)")
_SHIFT: Final = re.compile(r"([+-]?)(\d{1,12})(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class NotFoundError(Exception):
    """There is no such thing (any more)."""


class ConflictError(Exception):
    """It cannot be done with this one."""


class InvalidError(Exception):
    """What was given makes no sense; the message names it."""


class LoadingError(Exception):
    """The view cannot answer yet."""


@dataclass(frozen=True)
class Found:
    """A schedule with its content."""

    row: PendingRow
    standing: Standing
    others: list[PendingRow]


@dataclass(frozen=True)
class Console:
    """Everything together."""

    settings: Settings
    follower: Follower
    checkpoints: Checkpoints
    queries: Queries
    stories: Stories
    records: Records
    writes: Writes
    bulk: Bulk
    parts: PartsWatch
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    def require_view(self) -> Lag:
        """How far the view is behind; `LoadingError` while it is being filled."""
        lag = self.follower.lag()
        if not lag.complete:
            raise LoadingError(
                f"The view is being read from the log ({self.follower.rows_read} records so far)"
                + (f": {lag.trouble}" if lag.trouble else ".")
            )
        return lag

    def state(self, row: PendingRow) -> str:
        """Whether the dispatcher knows it already, and what it does with it."""
        if row.paused:
            return "paused"
        if row.attempt:
            return "retrying"
        checkpoint = self.checkpoints.latest.get(row.partition)
        known = "#" in row.action_key or (
            checkpoint is not None and checkpoint.position > row.offset
        )
        return "pending" if known else "accepted"

    def find_row(self, *, request_id: str | None, ref: str | None) -> PendingRow:
        """One schedule by its id or its ref; `NotFoundError` if it does not wait."""
        if (request_id is None) == (ref is None):
            raise InvalidError("Exactly one of id and ref is wanted.")
        if ref is not None:
            row = self.queries.get(*parse_ref(ref))
            if row is None:
                raise NotFoundError("It does not wait any more.")
            return row
        standing = self.queries.find(request_id or "")
        if not standing:
            raise NotFoundError(f"Nothing waits under the id {request_id}.")
        # what stands counts more than what is only on its way
        return max(standing, key=lambda row: (self.state(row) != "accepted", row.offset))

    def find(self, *, request_id: str | None = None, ref: str | None = None) -> Found:
        """One schedule with its content from the log."""
        row = self.find_row(request_id=request_id, ref=ref)
        others = [] if row.id is None else self.queries.find(row.id)
        record = self.records.read(self.settings.topics.actions, row.partition, row.offset)
        return Found(row, request_of(record), [other for other in others if other != row])

    def rejection(self, partition: int, offset: int) -> tuple[RejectionRow, Record]:
        """One rejection with its content from the log."""
        topic = self.settings.topics.rejections
        if not self.follower.has_read(topic, partition, offset):
            raise NotFoundError("There is no such rejection.")
        record = self.records.read(topic, partition, offset)
        row = read_rejection(partition, offset, self.now_ms(), record.value, record.headers)
        return row, record

    def create(self, body: CreateBody, author: Author, wait: float) -> Effect:
        """A new schedule."""
        request = self._delivery(body, "ADD", body.id)
        return self._send(request, "create", author, body.id, wait)

    def replace(self, request_id: str, body: DeliveryBody, author: Author, wait: float) -> Effect:
        """Another message or time under an id, whether something waits under it or not."""
        request = self._delivery(body, "REPLACE", request_id)
        return self._send(request, "replace", author, request_id, wait)

    def cancel(self, request_id: str, author: Author, wait: float) -> Effect:
        """Forget what waits under an id."""
        found = self.find(request_id=request_id)
        request = requests.cancelled(found.standing)
        return self._send(request, "cancel", author, request_id, wait, before=found.row)

    def pause(self, request_id: str, author: Author, wait: float) -> Effect:
        """Deliver nothing of it until it is resumed."""
        found = self.find(request_id=request_id)
        request = requests.paused(found.standing)
        return self._send(request, "pause", author, request_id, wait, before=found.row)

    def resume(self, request_id: str, author: Author, wait: float) -> Effect:
        """Let a paused one go on."""
        found = self.find(request_id=request_id)
        request = requests.resumed(found.standing)
        return self._send(request, "resume", author, request_id, wait, before=found.row)

    def reschedule(self, request_id: str, deliver_at: str, author: Author, wait: float) -> Effect:
        """The same content at another time; a paused one is not paused any more then."""
        moment = parse_moment(deliver_at, what="deliverAt", now_ms=self.now_ms())
        found = self.find(request_id=request_id)
        if found.row.cron:
            raise ConflictError("This one recurs: a single time would end that. Replace it.")
        request = requests.moved(found.standing, deliver_at_ms=moment)
        return self._send(request, "reschedule", author, request_id, wait)

    def run_now(self, author: Author, wait: float, *, request_id: str) -> Effect:
        """Deliver it at once; one that recurs goes on as before, or stays paused."""
        found = self.find(request_id=request_id)
        if found.row.cron:
            request = requests.copy_now(found.standing, now_ms=self.now_ms())
        else:
            request = requests.moved(found.standing, deliver_at_ms=self.now_ms())
        return self._send(request, "run-now", author, request_id, wait)

    def resend(
        self, partition: int, offset: int, body: ResendBody, author: Author, wait: float
    ) -> Effect:
        """A rejected request once more, with what was edited."""
        row, record = self.rejection(partition, offset)
        given = body.model_fields_set
        try:
            key = (
                payloads.to_bytes(body.key, body.key_encoding, what="key")
                if "key" in given
                else record.key
            )
            value = (
                payloads.to_bytes(body.value, body.value_encoding, what="value")
                if "value" in given
                else record.value
            )
        except payloads.PayloadError as error:
            raise InvalidError(str(error)) from error
        headers = record.headers if body.headers is None else _headers(body.headers)
        request = requests.resent(key, value, headers)
        request_id = dict(request.headers).get(names.REQUEST_ID)
        told = request_id.decode(errors="replace") if request_id else row.id
        return self._send(request, "resend", author, told, wait)

    def _delivery(self, body: DeliveryBody, action: str, request_id: str | None) -> Request:
        if sum(given is not None for given in (body.deliver_at, body.delay, body.cron)) > 1:
            raise InvalidError("deliverAt, delay, cron: give one of them.")
        deliver_at = body.deliver_at
        if deliver_at is None and body.delay is None:
            deliver_at = format_ms(self.now_ms())
        try:
            value = payloads.to_bytes(body.value, body.value_encoding, what="value")
            common: dict[str, Any] = {
                "action": action,
                "request_id": request_id,
                "key": payloads.to_bytes(body.key, body.key_encoding, what="key"),
                "headers": _user_headers(body.headers),
                "partition": body.partition,
                "expires_at": body.expires_at,
                "spread": body.spread,
            }
            if body.cron is not None:
                common.update(cron=body.cron, timezone=body.timezone, misfire=body.misfire)
                return requests.recurring(body.deliver_to, value, **common)
            if body.timezone is not None or body.misfire is not None:
                raise InvalidError("timezone, misfire: they go with cron.")
            return delivery_request(
                body.deliver_to, value, deliver_at=deliver_at, delay=body.delay, **common
            )
        except payloads.PayloadError as error:
            raise InvalidError(str(error)) from error

    def _send(
        self,
        request: Request,
        verb: WriteVerb,
        author: Author,
        request_id: str | None,
        wait: float,
        *,
        before: PendingRow | None = None,
    ) -> Effect:
        try:
            return self.writes.send(
                request,
                verb=verb,
                author=author,
                request_id=request_id,
                wait_seconds=wait,
                before=before,
            )
        except RequestError as error:
            hint = (
                " A record without a key is refused by a requests topic that is compacted:"
                " give it a key."
                if request.key is None
                else ""
            )
            raise ConflictError(f"{error}{hint}") from error


def ref_of(row: PendingRow) -> str:
    """Names exactly this schedule."""
    return f"{row.due}.{row.action_key}"


def next_fires(row: PendingRow, number: int, now_ms: int) -> list[int]:
    """The next times of one that recurs; none where the expression makes no sense.

    Of a paused one: those that would come if it were resumed now.
    """
    fires = [row.told_due] if row.cron else []
    plan = Plan(Verb.ADD, row.told_due, "", cron=row.cron, timezone=row.timezone)
    try:
        if fires and row.paused and row.told_due < now_ms:
            fires = [recurrence.next_fire(plan, now_ms)]
        while fires and len(fires) < number:
            fires.append(recurrence.next_fire(plan, fires[-1]))
    except recurrence.RecurrenceError:
        return fires
    return fires


def fires_of(cron: str, timezone: str, *, after_ms: int, number: int) -> list[int]:
    """The first fires of an expression; `InvalidError` with what is wrong with it."""
    plan = Plan(Verb.ADD, after_ms, "", cron=cron, timezone=timezone)
    fires: list[int] = []
    try:
        while len(fires) < number:
            fires.append(recurrence.next_fire(plan, fires[-1] if fires else after_ms))
    except recurrence.RecurrenceError as error:
        raise InvalidError(str(error)) from error
    return fires


def parse_ref(ref: str) -> tuple[int, str]:
    """Undo `ref_of`."""
    match = _REF.fullmatch(ref)
    if match is None:
        raise InvalidError("ref: take it from a list, as it is.")
    return int(match[1]), match[2]


def parse_moment(text: str, *, what: str, now_ms: int) -> int:
    """Milliseconds of an ISO 8601 moment (no zone means UTC) or of a delay from now on."""
    if (shift := _SHIFT.fullmatch(text.strip())) is not None:
        return now_ms + _shift_ms(shift)
    try:
        moment = datetime.fromisoformat(text.strip())
        return max(to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC)), 0)
    except (ValueError, OverflowError) as error:
        raise InvalidError(
            f"{what}: {text[:50]!r} is given, want ISO 8601 such as 2026-11-18T20:00:00Z, or a"
            " delay such as 15m."
        ) from error


def parse_shift(text: str) -> int:
    """Milliseconds of `2h` or `-30m`."""
    match = _SHIFT.fullmatch(text.strip())
    if match is None:
        raise InvalidError(f"shift: {text[:50]!r} is given, want a duration such as 2h or -30m.")
    return _shift_ms(match)


def _shift_ms(match: re.Match[str]) -> int:
    sign = -1 if match[1] == "-" else 1
    return min(sign * int(match[2]) * _UNIT_MS[match[3]], 10**15)


def _headers(bodies: list[HeaderBody]) -> list[tuple[str, bytes | None]]:
    try:
        found = []
        for header in bodies:
            header.name.encode()
            found.append(
                (
                    header.name,
                    payloads.to_bytes(header.value, header.encoding, what=f"header {header.name}"),
                )
            )
        return found
    except (payloads.PayloadError, UnicodeEncodeError) as error:
        raise InvalidError(str(error)) from error


def _user_headers(bodies: list[HeaderBody]) -> list[tuple[str, bytes | None]]:
    for header in bodies:
        if header.name.startswith(names.PREFIX):
            raise InvalidError(f"headers: {header.name} is ours: use the field for it.")
    return _headers(bodies)
