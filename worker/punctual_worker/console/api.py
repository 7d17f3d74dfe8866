"""The REST API under /api/v1: reading. `api_writes` has what changes something."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from punctual_worker.console import models, shapes
from punctual_worker.console.filters import MAX_MS, Order
from punctual_worker.console.overview import Overviews
from punctual_worker.console.schema import HOUR_MS
from punctual_worker.console.service import Console, InvalidError, parse_moment
from punctual_worker.contract.times import format_ms

PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": models.Problem, "description": "Not HTTP or JSON as it should be"},
    401: {"model": models.Problem, "description": "Nobody knows who asks"},
    404: {"model": models.Problem, "description": "There is no such thing (any more)"},
    421: {"model": models.Problem, "description": "This host name is not served"},
    422: {"model": models.Problem, "description": "Something that was given makes no sense"},
    503: {"model": models.Problem, "description": "The view cannot answer (yet)"},
}
IdPrefix = Annotated[str, Query(alias="idPrefix", max_length=255, description="How the id begins")]
Destination = Annotated[
    str, Query(max_length=249, description="Topic, or the beginning of its name with `*`")
]
DueFrom = Annotated[
    str | None,
    Query(alias="dueFrom", max_length=100, description="ISO 8601, or from now on: `15m`"),
]
DueTo = Annotated[
    str | None, Query(alias="dueTo", max_length=100, description="Exclusive; as `dueFrom`")
]
Recurring = Annotated[bool | None, Query(description="Only those that recur, or that do not")]
Paused = Annotated[
    bool | None,
    Query(
        description="Only those that are paused, or that are not. What is paused is due at no time:"
        " only with `true` does it match `dueFrom` and `dueTo`, by when it was to be due"
    ),
]
Id = Annotated[str | None, Query(min_length=1, max_length=255, description="Request id")]
RequiredId = Annotated[str, Query(min_length=1, max_length=255, description="Request id")]
Ref = Annotated[
    str | None,
    Query(
        max_length=60,
        pattern=r"^[0-9]{1,15}\.[0-9a-f]{1,8}/[0-9]{1,10}/[0-9]{1,19}(#[0-9]{1,10})?$",
        description="Names exactly one; from a list",
    ),
]
Cursor = Annotated[str | None, Query(max_length=2_000, description="From the page before")]
PageLimit = Annotated[int, Query(ge=1, le=1_000)]
Sort = Literal["due", "-due", "id", "-id"]


def read_routes(console: Console, overviews: Overviews) -> APIRouter:
    """Everything that only looks."""
    api = APIRouter(prefix="/api/v1", responses=PROBLEMS)

    @api.get("/overview", tags=["overview"])
    def overview() -> models.Overview:
        """Everything at a glance."""
        console.require_view()
        return overviews.get()

    @api.get("/status", tags=["overview"])
    def status() -> models.ViewStatus:
        """How far the view is behind the log."""
        return overviews.status()

    @api.get("/schedules", tags=["schedules"])
    def list_schedules(
        id_prefix: IdPrefix = "",
        destination: Destination = "",
        due_from: DueFrom = None,
        due_to: DueTo = None,
        recurring: Recurring = None,
        paused: Paused = None,
        sort: Annotated[Sort, Query(description="`id` lists only those that have one")] = "due",
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> models.SchedulePage:
        """What is pending. Go on with `cursor` until `nextCursor` is null."""
        lag = console.require_view()
        page = console.queries.page(
            _filters(id_prefix, destination, due_from, due_to, recurring, paused),
            parse_order(sort),
            limit=limit,
            cursor=cursor,
        )
        return models.SchedulePage(
            schedules=[shapes.schedule(console, row) for row in page.rows],
            next_cursor=page.next_cursor,
            behind_seconds=round(lag.seconds, 3),
        )

    @api.get("/schedules/count", tags=["schedules"])
    def count_schedules(
        id_prefix: IdPrefix = "",
        destination: Destination = "",
        due_from: DueFrom = None,
        due_to: DueTo = None,
        recurring: Recurring = None,
        paused: Paused = None,
    ) -> models.CountAnswer:
        """How many are pending; by id or recurrence counted up to 10,000."""
        console.require_view()
        given = _filters(id_prefix, destination, due_from, due_to, recurring, paused)
        count = console.queries.count(given)
        return models.CountAnswer(count=count.number, exact=count.exact)

    @api.get("/schedules/histogram", tags=["schedules"])
    def histogram(
        id_prefix: IdPrefix = "",
        destination: Destination = "",
        due_from: DueFrom = None,
        due_to: DueTo = None,
        recurring: Recurring = None,
        paused: Paused = None,
        buckets: Annotated[int, Query(ge=1, le=200)] = 24,
    ) -> models.HistogramAnswer:
        """How many are due when, by default in the next day; long spans in whole hours."""
        console.require_view()
        now = console.now_ms()
        start = now if due_from is None else _moment(due_from, "dueFrom")
        end = start + 24 * HOUR_MS if due_to is None else _moment(due_to, "dueTo")
        if not start < end <= MAX_MS:
            raise InvalidError("dueFrom, dueTo: want a span of time before the year 10000.")
        step = -(-(end - start) // buckets)
        if step > HOUR_MS:  # the tallies know hours
            start, step = start // HOUR_MS * HOUR_MS, -(-step // HOUR_MS) * HOUR_MS
        given = _filters(id_prefix, destination, None, None, recurring, paused)
        counts = console.queries.histogram(given, start=start, step=step, buckets=buckets)
        return models.HistogramAnswer(
            step_ms=step,
            buckets=[
                models.Bucket(
                    start=format_ms(min(start + step * index, MAX_MS)),
                    end=format_ms(min(start + step * (index + 1), MAX_MS)),
                    count=number,
                )
                for index, number in enumerate(counts)
            ],
        )

    @api.get("/schedule", tags=["schedules"])
    def show_schedule(id: Id = None, ref: Ref = None) -> models.ScheduleDetail:
        """One schedule with its headers, payload and story, by `id` or by `ref`."""
        console.require_view()
        return shapes.detail(console, console.find(request_id=id, ref=ref))

    @api.get("/story", tags=["schedules"])
    def tell_story(id: RequiredId) -> models.Story:
        """What happened under an id, also when nothing waits under it any more."""
        console.require_view()
        return shapes.story(console, id)

    @api.get("/rejections", tags=["rejections"])
    def list_rejections(
        code: Annotated[str, Query(max_length=100, description="Has this code")] = "",
        id_prefix: IdPrefix = "",
        destination: Annotated[str, Query(max_length=249)] = "",
        limit: PageLimit = 50,
        cursor: Cursor = None,
    ) -> models.RejectionPage:
        """What was rejected, newest first."""
        lag = console.require_view()
        page = console.stories.rejections(
            code=code, id_prefix=id_prefix, destination=destination, limit=limit, cursor=cursor
        )
        return models.RejectionPage(
            rejections=[shapes.rejection(row) for row in page.rows],
            next_cursor=page.next_cursor,
            behind_seconds=round(lag.seconds, 3),
        )

    @api.get("/rejections/{partition}/{offset}", tags=["rejections"])
    def show_rejection(
        partition: models.PartitionNumber, offset: models.Offset
    ) -> models.RejectionDetail:
        """One rejected request in full."""
        console.require_view()
        return shapes.rejection_detail(console, *console.rejection(partition, offset))

    def _moment(text: str, what: str) -> int:
        return parse_moment(text, what=what, now_ms=console.now_ms())

    def _filters(
        id_prefix: str,
        destination: str,
        due_from: str | None,
        due_to: str | None,
        recurring: bool | None,
        paused: bool | None,
    ) -> Any:
        return shapes.filters(
            console,
            models.FiltersBody(
                id_prefix=id_prefix,
                destination=destination,
                due_from=due_from,
                due_to=due_to,
                recurring=recurring,
                paused=paused,
            ),
        )

    return api


def parse_order(sort: Sort) -> Order:
    """`-due` and so on."""
    field: Literal["due", "id"] = "id" if sort.endswith("id") else "due"
    return Order(field, sort.startswith("-"))
