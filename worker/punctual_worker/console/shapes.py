"""From rows and records to the API's bodies."""

from typing import Any

from punctual_worker.console import models, payloads, stories
from punctual_worker.console.bulk import Job
from punctual_worker.console.filters import Filters
from punctual_worker.console.records import Record
from punctual_worker.console.rows import EventRow, PendingRow, RejectionRow
from punctual_worker.console.service import Console, Found, next_fires, parse_moment, ref_of
from punctual_worker.console.writes import Effect
from punctual_worker.contract.times import format_ms

_HEADER_LIMIT = 4_096
_FIRES = 3


def schedule(console: Console, row: PendingRow) -> models.Schedule:
    """A row of the list."""
    state: Any = console.state(row)
    return models.Schedule(
        ref=ref_of(row),
        id=row.id,
        state=state,
        paused=row.paused,
        destination=row.destination,
        due=format_ms(max(row.told_due, 0)),
        due_ms=max(row.told_due, 0),
        scheduled_for=format_ms(max(row.wanted, 0)),
        expires_at=None if row.expires is None else format_ms(max(row.expires, 0)),
        attempt=row.attempt,
        cron=row.cron or None,
        timezone=row.timezone or None,
        next_fires=[format_ms(fire) for fire in next_fires(row, _FIRES, console.now_ms())],
        value_size=row.size,
    )


def payload(console: Console, raw: bytes | None, limit: int | None = None) -> models.Payload:
    """A key, value or header as the settings allow."""
    settings = console.settings
    return models.Payload.of(
        payloads.show(
            raw,
            limit=settings.console_payload_max_bytes if limit is None else limit,
            hidden=settings.console_hide_payloads,
        )
    )


def headers(console: Console, given: list[tuple[str, bytes | None]]) -> list[models.Header]:
    """Headers in their order."""
    return [
        models.Header(name=name, value=payload(console, content, _HEADER_LIMIT))
        for name, content in given
    ]


def detail(console: Console, found: Found) -> models.ScheduleDetail:
    """A schedule in full."""
    plan, row = found.standing.plan, found.row
    coordinates = row.action_key.partition("#")[0].partition("/")[2]
    return models.ScheduleDetail(
        schedule=schedule(console, row),
        source=f"{plan.source or console.settings.topics.requests}/{coordinates}",
        key=payload(console, found.standing.key),
        value=payload(console, found.standing.value),
        headers=headers(console, found.standing.headers),
        story=[event(known) for known in console.stories.events(row.schedule_id)],
        others=[schedule(console, other) for other in found.others],
    )


def story(console: Console, request_id: str) -> models.Story:
    """What happened under an id."""
    return models.Story(
        id=request_id,
        events=[event(known) for known in console.stories.events(request_id)],
        rejections=[rejection(known) for known in console.stories.rejections_of(request_id)],
    )


def event(row: EventRow) -> models.Event:
    """An event of the story."""
    content = stories.event_content(row)

    def text(name: str) -> str | None:
        return None if content.get(name) is None else str(content[name])

    lateness = content.get("latenessMs")
    return models.Event(
        event=row.event,
        at=format_ms(row.at),
        reason=text("reason"),
        destination=text("destination"),
        scheduled_for=text("scheduledFor"),
        lateness_ms=lateness if isinstance(lateness, int) else None,
        source=text("source"),
    )


def rejection(row: RejectionRow) -> models.Rejection:
    """A row of the rejections."""
    return models.Rejection(
        partition=row.partition,
        offset=row.offset,
        at=format_ms(max(row.at, 0)),
        id=row.id,
        codes=[code.strip() for code in row.codes.split(",") if code.strip()],
        reason=row.reason,
        source=row.source,
        destination=row.destination or None,
        value_size=row.size,
    )


def rejection_detail(console: Console, row: RejectionRow, record: Record) -> models.RejectionDetail:
    """A rejection in full."""
    return models.RejectionDetail(
        rejection=rejection(row),
        key=payload(console, record.key),
        value=payload(console, record.value),
        headers=headers(console, record.headers),
    )


def answer(effect: Effect, request_id: str | None) -> models.WriteAnswer:
    """What became of a request."""
    return models.WriteAnswer(
        outcome=effect.outcome,
        id=request_id,
        source=effect.source,
        took_ms=effect.took_ms,
        codes=list(effect.codes),
        reason=effect.reason,
    )


def job(known: Job) -> models.BulkJob:
    """A bulk job as it stands."""
    names = set(models.BulkJob.model_fields)
    return models.BulkJob(**{name: value for name, value in vars(known).items() if name in names})


def filters(console: Console, given: models.FiltersBody) -> Filters:
    """Filters with their times read."""

    def moment(text: str | None, what: str) -> int | None:
        return None if not text else parse_moment(text, what=what, now_ms=console.now_ms())

    return Filters(
        id_prefix=given.id_prefix,
        destination=given.destination,
        due_from=moment(given.due_from, "dueFrom"),
        due_to=moment(given.due_to, "dueTo"),
        recurring=given.recurring,
        paused=given.paused,
    )
