"""The API's bodies, as its description tells them. Names in camelCase, times in ISO 8601, UTC."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from punctual_worker.console.filters import MAX_MS
from punctual_worker.console.payloads import Shown

Limit = Annotated[int, Field(ge=1, le=1_000)]
Ms = Annotated[int, Field(ge=0, le=MAX_MS)]
Text = Annotated[str, Field(max_length=1_000)]


class Model(BaseModel):
    """Camel case outside, snake case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class Payload(Model):
    """A key, value or header: text, JSON (as text) or base64, cut at the console's limit."""

    encoding: Literal["null", "text", "json", "base64", "hidden"]
    text: str | None
    size: int
    truncated: bool

    @classmethod
    def of(cls, shown: Shown) -> "Payload":
        """From what `payloads.show` gives."""
        return cls(**shown._asdict())


class Header(Model):
    """A record header."""

    name: str
    value: Payload


class Schedule(Model):
    """A schedule that waits."""

    ref: str
    """Names exactly this one, also where there is no id."""
    id: str | None
    state: Literal["accepted", "pending", "retrying", "paused"]
    """Accepted: taken in by intake, but not seen by the dispatcher yet."""
    paused: bool
    destination: str
    due: str
    """Of a paused one: when it was to be due. It is not delivered before it is resumed."""
    due_ms: int
    scheduled_for: str
    expires_at: str | None
    attempt: int
    cron: str | None
    timezone: str | None
    next_fires: list[str]
    """Of one that recurs: the first is `due`, or of a paused one the first after now."""
    value_size: int | None


class SchedulePage(Model):
    """A page of the list."""

    schedules: list[Schedule]
    next_cursor: str | None
    behind_seconds: float


class CountAnswer(Model):
    """How many; if not exact, at least so many."""

    count: int
    exact: bool


class Bucket(Model):
    """A stretch of time, and how many are due in it."""

    start: str
    end: str
    count: int


class HistogramAnswer(Model):
    """How many are due when."""

    buckets: list[Bucket]
    step_ms: int


class Event(Model):
    """Something that happened to a schedule."""

    event: str
    at: str
    reason: str | None
    destination: str | None
    scheduled_for: str | None
    lateness_ms: int | None
    source: str | None


class ScheduleDetail(Model):
    """A schedule with its content and its story."""

    schedule: Schedule
    source: str
    key: Payload
    value: Payload
    headers: list[Header]
    story: list[Event]
    others: list[Schedule]
    """What else stands under this id at the moment: a replacement on its way."""


class Story(Model):
    """What happened under an id, also when nothing waits any more."""

    id: str
    events: list[Event]
    """Oldest first; none where the app keeps no history."""
    rejections: list["Rejection"]
    """Newest first."""


class HeaderBody(Model):
    """A header to be sent."""

    name: Annotated[str, Field(min_length=1, max_length=1_000)]
    value: str | None = None
    encoding: Literal["text", "base64"] = "text"


class DeliveryBody(Model):
    """A message to deliver. Without a time, with `null` or with one in the past: now."""

    deliver_to: Annotated[str, Field(min_length=1, max_length=249)]
    deliver_at: Text | None = None
    delay: Text | None = None
    cron: Text | None = None
    """Instead of a time: it recurs."""
    timezone: Text | None = None
    misfire: Literal["once", "all", "skip"] | None = None
    key: str | None = None
    key_encoding: Literal["text", "base64"] = "text"
    value: Any = None
    """Text, or any JSON, which is delivered as such; null is a null value."""
    value_encoding: Literal["text", "base64"] = "text"
    headers: Annotated[list[HeaderBody], Field(max_length=500)] = []
    partition: Annotated[int, Field(ge=0, le=2_147_483_647)] | None = None
    expires_at: Text | None = None
    spread: Text | None = None


class CreateBody(DeliveryBody):
    """A new schedule; only one with an id can be changed later."""

    id: Annotated[str, Field(min_length=1, max_length=255)] | None = None


class RescheduleBody(Model):
    """Another time for the same content."""

    deliver_at: Annotated[str, Field(min_length=1, max_length=100)]


class WriteAnswer(Model):
    """What became of a request.

    `accepted` (by intake) and `requested` (Kafka has it) mean that the wait was too short to see
    more.
    """

    outcome: Literal[
        "pending",
        "delivered",
        "retrying",
        "cancelled",
        "paused",
        "resumed",
        "missed",
        "unchanged",
        "rejected",
        "accepted",
        "requested",
    ]
    id: str | None
    source: str
    took_ms: int
    codes: list[str]
    reason: str


class FiltersBody(Model):
    """Which schedules."""

    id_prefix: Annotated[str, Field(max_length=255)] = ""
    destination: Annotated[str, Field(max_length=249)] = ""
    due_from: Text | None = None
    due_to: Text | None = None
    recurring: bool | None = None
    paused: bool | None = None


class BulkBody(Model):
    """A dry run."""

    verb: Literal["cancel", "reschedule", "pause", "resume"]
    filters: FiltersBody
    deliver_at: Text | None = None
    shift: Text | None = None
    """By how much: `2h`, `-30m`."""


class ConfirmBody(Model):
    """The number that the dry run has told."""

    count: Annotated[int, Field(ge=0, le=1_000_000_000)]


class BulkJob(Model):
    """A job as it stands."""

    token: str
    verb: Literal["cancel", "reschedule", "pause", "resume"]
    state: Literal["planned", "running", "done", "failed", "stopped"]
    count: int
    skipped: int
    sent: int
    gone: int
    user: str
    error: str


class BulkJobs(Model):
    """Newest first."""

    jobs: list[BulkJob]


class Rejection(Model):
    """A rejected request."""

    partition: int
    offset: int
    at: str
    id: str | None
    codes: list[str]
    reason: str
    source: str
    destination: str | None
    value_size: int | None


class RejectionPage(Model):
    """A page, newest first."""

    rejections: list[Rejection]
    next_cursor: str | None
    behind_seconds: float


class RejectionDetail(Model):
    """A rejected request in full."""

    rejection: Rejection
    key: Payload
    value: Payload
    headers: list[Header]


class ResendBody(Model):
    """What is different this time; what is left out stays as it was."""

    key: str | None = None
    key_encoding: Literal["text", "base64"] = "text"
    value: Any = None
    value_encoding: Literal["text", "base64"] = "text"
    headers: Annotated[list[HeaderBody], Field(max_length=500)] | None = None


class PartHealth(Model):
    """Another part, as it last answered."""

    name: str
    ready: bool
    says: str


class DeliveryFigures(Model):
    """Of the last minute."""

    per_second: float
    lateness_p50_ms: float | None
    lateness_p99_ms: float | None


class CodeCount(Model):
    """How many rejections of a code are kept."""

    code: str
    count: int


class DestinationCount(Model):
    """How many wait for a destination."""

    destination: str
    count: int


class ViewStatus(Model):
    """How far the view is behind the log."""

    complete: bool
    behind_records: int
    behind_seconds: float
    trouble: str


class Overview(Model):
    """Everything at a glance."""

    app_id: str
    now: str
    view: ViewStatus
    read_only: bool
    pending: int
    overdue: int
    due_next_hour: int
    due_next_day: int
    due_next_week: int
    next_due: str | None
    recurring: int
    paused: int
    """Pending too, but due at no time."""
    destinations: list[DestinationCount]
    rejections: list[CodeCount]
    delivery: DeliveryFigures | None
    parts: list[PartHealth]


class Problem(Model):
    """Why it was not done."""

    detail: str


PartitionNumber = Annotated[int, Field(ge=0, le=1_000_000)]
Offset = Annotated[int, Field(ge=0, le=(1 << 44) - 1)]
