"""The REST API under /api/v1: what changes something."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from punctual_worker.console import models, shapes
from punctual_worker.console.api import PROBLEMS
from punctual_worker.console.api import RequiredId as RequestId
from punctual_worker.console.bulk import BulkError, Job
from punctual_worker.console.service import (
    ConflictError,
    Console,
    NotFoundError,
    parse_moment,
    parse_shift,
)
from punctual_worker.console.writes import Author, Effect

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    **PROBLEMS,
    403: {"model": models.Problem, "description": "Read-only, or sent by another site's page"},
    409: {"model": models.Problem, "description": "It cannot be done with this one"},
    413: {"model": models.Problem, "description": "The request is too large"},
    429: {"model": models.Problem, "description": "Too many changes at once"},
}
_WRITE: dict[int | str, dict[str, Any]] = {
    200: {"model": models.WriteAnswer, "description": "The view has seen the effect"},
    202: {"model": models.WriteAnswer, "description": "Sent, but nothing was seen in time"},
    422: {
        "model": models.WriteAnswer | models.Problem,
        "description": "Rejected, with the codes; or what was given makes no sense",
    },
}
Wait = Annotated[
    float, Query(ge=0, le=30, description="Most seconds to wait until the effect is seen")
]


def write_routes(console: Console) -> APIRouter:
    """Everything that changes something, by requests like anybody's."""
    api = APIRouter(prefix="/api/v1", responses=_PROBLEMS)

    @api.post("/schedules", tags=["schedules"], responses=_WRITE)
    def create(
        body: models.CreateBody, request: Request, response: Response, wait: Wait = 5
    ) -> models.WriteAnswer:
        """Schedule a message; a body with only `deliverTo`, `key` and `value` delivers it now."""
        return _told(response, console.create(body, author_of(request), wait), body.id)

    @api.put("/schedule", tags=["schedules"], responses=_WRITE)
    def replace(
        id: RequestId,
        body: models.DeliveryBody,
        request: Request,
        response: Response,
        wait: Wait = 5,
    ) -> models.WriteAnswer:
        """Put another message or time in the place of what waits under this id."""
        return _told(response, console.replace(id, body, author_of(request), wait), id)

    @api.delete("/schedule", tags=["schedules"], responses=_WRITE)
    def cancel(
        id: RequestId, request: Request, response: Response, wait: Wait = 5
    ) -> models.WriteAnswer:
        """Forget what waits under this id."""
        console.require_view()
        return _told(response, console.cancel(id, author_of(request), wait), id)

    @api.post("/schedule/reschedule", tags=["schedules"], responses=_WRITE)
    def reschedule(
        id: RequestId,
        body: models.RescheduleBody,
        request: Request,
        response: Response,
        wait: Wait = 5,
    ) -> models.WriteAnswer:
        """The same message at another time."""
        console.require_view()
        effect = console.reschedule(id, body.deliver_at, author_of(request), wait)
        return _told(response, effect, id)

    @api.post("/schedule/run-now", tags=["schedules"], responses=_WRITE)
    def run_now(
        id: RequestId, request: Request, response: Response, wait: Wait = 5
    ) -> models.WriteAnswer:
        """Deliver it at once. One that recurs is delivered once more and goes on."""
        console.require_view()
        return _told(response, console.run_now(author_of(request), wait, request_id=id), id)

    @api.post("/schedule/pause", tags=["schedules"], responses=_WRITE)
    def pause(
        id: RequestId, request: Request, response: Response, wait: Wait = 5
    ) -> models.WriteAnswer:
        """Deliver nothing of it until it is resumed."""
        console.require_view()
        return _told(response, console.pause(id, author_of(request), wait), id)

    @api.post("/schedule/resume", tags=["schedules"], responses=_WRITE)
    def resume(
        id: RequestId, request: Request, response: Response, wait: Wait = 5
    ) -> models.WriteAnswer:
        """Let a paused one go on. What fell due meanwhile is late, as after an outage."""
        console.require_view()
        return _told(response, console.resume(id, author_of(request), wait), id)

    @api.post("/rejections/{partition}/{offset}/resend", tags=["rejections"], responses=_WRITE)
    def resend(
        partition: models.PartitionNumber,
        offset: models.Offset,
        body: models.ResendBody,
        request: Request,
        response: Response,
        wait: Wait = 5,
    ) -> models.WriteAnswer:
        """Send a rejected request again, repaired."""
        console.require_view()
        effect = console.resend(partition, offset, body, author_of(request), wait)
        return _told(response, effect, None)

    @api.post("/bulk", tags=["bulk"])
    def plan(body: models.BulkBody, request: Request) -> models.BulkJob:
        """The dry run: how many would be cancelled, rescheduled, paused or resumed."""
        return shapes.job(plan_job(console, body, author_of(request)))

    @api.get("/bulk", tags=["bulk"])
    def jobs() -> models.BulkJobs:
        """All jobs of this console, newest first."""
        return models.BulkJobs(jobs=[shapes.job(job) for job in console.bulk.all()])

    @api.get("/bulk/{token}", tags=["bulk"])
    def job(token: str) -> models.BulkJob:
        """A job as it stands."""
        found = console.bulk.get(token)
        if found is None:
            raise NotFoundError("There is no such job.")
        return shapes.job(found)

    @api.post("/bulk/{token}/confirm", tags=["bulk"])
    def confirm(token: str, body: models.ConfirmBody, request: Request) -> models.BulkJob:
        """Begin, in the background; `count` must be what the dry run has told."""
        try:
            return shapes.job(console.bulk.confirm(token, body.count, author_of(request)))
        except BulkError as error:
            raise ConflictError(str(error)) from error

    @api.post("/bulk/{token}/stop", tags=["bulk"])
    def stop(token: str, request: Request) -> models.BulkJob:
        """Send no more; what was sent stays sent."""
        try:
            return shapes.job(console.bulk.stop_job(token, author_of(request)))
        except BulkError as error:
            raise ConflictError(str(error)) from error

    return api


def plan_job(console: Console, body: models.BulkBody, author: Author) -> Job:
    """The dry run that a body asks for."""
    console.require_view()
    now = console.now_ms()
    at = None if not body.deliver_at else parse_moment(body.deliver_at, what="at", now_ms=now)
    shift = None if not body.shift else parse_shift(body.shift)
    try:
        return console.bulk.plan(
            body.verb,
            shapes.filters(console, body.filters),
            author=author,
            deliver_at_ms=at,
            shift_ms=shift,
        )
    except BulkError as error:
        raise ConflictError(str(error)) from error


def author_of(request: Request) -> Author:
    """Who asks, as the guard has found out."""
    author: Author = request.state.author
    return author


def _told(response: Response, effect: Effect, request_id: str | None) -> models.WriteAnswer:
    if effect.outcome == "rejected":
        response.status_code = 422
    elif not effect.seen:
        response.status_code = 202
    return shapes.answer(effect, request_id)
