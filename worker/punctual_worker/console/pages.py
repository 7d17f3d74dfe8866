"""The web pages: server-rendered, usable without scripts and without internet access."""

from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from punctual_worker.console import editing, forms, models, shapes
from punctual_worker.console.api import parse_order
from punctual_worker.console.charts import bars
from punctual_worker.console.forms import Form
from punctual_worker.console.overview import SPANS, Overviews
from punctual_worker.console.rendering import DIRECTORY, Renderer
from punctual_worker.console.security import Policy
from punctual_worker.console.service import Console, NotFoundError
from punctual_worker.contract.codes import Code

_PAGE_ROWS: Final = 50
_CHOICES: Final = {"yes": True, "no": False}
_SORTS: Final = ("due", "-due", "id", "-id")


def add_pages(app: FastAPI, console: Console, overviews: Overviews, policy: Policy) -> None:
    """All pages that are looked at; `forms` has what they send."""
    renderer = Renderer(console, policy, overviews)
    app.state.renderer = renderer
    app.mount("/static", StaticFiles(directory=DIRECTORY / "static"), name="static")

    @app.get("/", include_in_schema=False)
    def overview(request: Request) -> Response:
        console.require_view()
        span = request.query_params.get("span", "day")
        picture = overviews.picture(span if span in SPANS else "day")
        return renderer.page(
            request,
            "overview.html",
            overview=overviews.get(),
            spans=SPANS,
            span=picture.span,
            chart=bars(picture),
        )

    @app.get("/pending", include_in_schema=False)
    def pending(request: Request) -> Response:
        return _list(request, "pending.html", recurring=None)

    @app.get("/recurring", include_in_schema=False)
    def recurring(request: Request) -> Response:
        return _list(request, "recurring.html", recurring=True)

    def _list(request: Request, template: str, *, recurring: bool | None) -> Response:
        lag = console.require_view()
        given = request.query_params
        asked = models.FiltersBody(
            id_prefix=given.get("id", "")[:255],
            destination=given.get("to", "")[:249],
            due_from=given.get("from") or None,
            due_to=given.get("until") or None,
            recurring=recurring,
            paused=_CHOICES.get(given.get("paused", "")),
        )
        filters = shapes.filters(console, asked)
        sort: Any = given.get("sort", "due")
        sort = sort if sort in _SORTS else "due"
        page = console.queries.page(
            filters, parse_order(sort), limit=_PAGE_ROWS, cursor=given.get("cursor")
        )
        return renderer.page(
            request,
            template,
            schedules=[shapes.schedule(console, row) for row in page.rows],
            count=console.queries.count(filters),
            next_cursor=page.next_cursor,
            asked=asked,
            narrowed=any(given.get(name) for name in ("id", "to", "from", "until", "paused")),
            sort=sort,
            lag=lag,
            later=given.get("cursor") is not None,
        )

    @app.get("/schedule", include_in_schema=False)
    def schedule(request: Request) -> Response:
        console.require_view()
        request_id = request.query_params.get("id") or None
        ref = request.query_params.get("ref") or None
        try:
            found = console.find(request_id=None if ref else request_id, ref=ref)
        except NotFoundError as error:
            story = shapes.story(console, request_id) if request_id else None
            return renderer.page(
                request,
                "gone.html",
                status=404,
                id=request_id,
                detail=str(error),
                story=story,
            )
        return renderer.page(request, "schedule.html", **forms.shown(console, found))

    @app.get("/rejections", include_in_schema=False)
    def rejections(request: Request) -> Response:
        console.require_view()
        given = request.query_params
        code, prefix = given.get("code", ""), given.get("id", "")
        page = console.stories.rejections(
            code=code, id_prefix=prefix, limit=_PAGE_ROWS, cursor=given.get("cursor")
        )
        return renderer.page(
            request,
            "rejections.html",
            rejections=[shapes.rejection(row) for row in page.rows],
            next_cursor=page.next_cursor,
            totals=console.stories.rejections_by_code(),
            codes=[str(known) for known in Code],
            code=code,
            prefix=prefix,
        )

    @app.get("/rejections/{partition:int}/{offset:int}", include_in_schema=False)
    def rejection(request: Request, partition: int, offset: int) -> Response:
        row, record = console.rejection(partition, offset)
        detail = shapes.rejection_detail(console, row, record)
        return renderer.page(
            request,
            "rejection.html",
            rejection=detail.rejection,
            detail=detail,
            form=editing.repair_form(console, record),
        )

    @app.get("/create", include_in_schema=False)
    def create(request: Request) -> Response:
        ref = request.query_params.get("ref")
        form = editing.edit_form(console, console.find(ref=ref)) if ref else editing.empty_form()
        return renderer.page(request, "create.html", form=form, fires=[], fault="")

    @app.get("/bulk/{token}", include_in_schema=False)
    def job(request: Request, token: str) -> Response:
        found = console.bulk.get(token)
        if found is None:
            raise NotFoundError("There is no such job.")
        return renderer.page(request, "bulk.html", job=found)

    @app.get("/login", include_in_schema=False)
    def login(request: Request) -> Response:
        return renderer.page(request, "login.html", wrong=False)

    @app.post("/{path:path}", include_in_schema=False)
    async def post(request: Request, path: str) -> Response:
        form = Form.parse(await request.body())
        renderer.check_form(request, form)
        return await run_in_threadpool(forms.handle, renderer, request, f"/{path}", form)


def error_page(
    request: Request, status: HTTPStatus, detail: str, headers: dict[str, str]
) -> Response:
    """An error as a page."""
    renderer: Renderer = request.app.state.renderer
    response = renderer.page(
        request, "error.html", status=int(status), phrase=status.phrase, detail=detail
    )
    response.headers.update(headers)
    return response
