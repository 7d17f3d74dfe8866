"""The HTTP application: routes, errors as sentences, metrics and probes."""

from collections.abc import Callable
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from punctual_worker.console import pages
from punctual_worker.console.api import read_routes
from punctual_worker.console.api_writes import write_routes
from punctual_worker.console.filters import CursorError
from punctual_worker.console.guard import Guard
from punctual_worker.console.overview import Overviews
from punctual_worker.console.reading import TooSlowError
from punctual_worker.console.records import RecordGoneError
from punctual_worker.console.security import Policy, RateLimit, RefusedError
from punctual_worker.console.service import (
    ConflictError,
    Console,
    InvalidError,
    LoadingError,
    NotFoundError,
)

_STATUS: dict[type[Exception], int] = {
    NotFoundError: 404,
    RecordGoneError: 404,
    ConflictError: 409,
    InvalidError: 422,
    CursorError: 422,
    LoadingError: 503,
    TooSlowError: 503,
}


def make_app(console: Console, policy: Policy, registry: CollectorRegistry) -> ASGIApp:
    """Everything behind the guard."""
    overviews = Overviews(console, read_only=policy.read_only)
    app = FastAPI(
        title="Punctual console",
        description="See and steer what is pending.",
        version="1",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(read_routes(console, overviews))
    app.include_router(write_routes(console))
    pages.add_pages(app, console, overviews, policy)
    for kind, status in _STATUS.items():
        app.add_exception_handler(kind, _problem(status))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RefusedError, _refused)

    @app.get("/livez", include_in_schema=False)
    def livez() -> Response:
        alive = console.follower.alive
        return PlainTextResponse("ok\n" if alive else "dead\n", 200 if alive else 503)

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> Response:
        lag = console.follower.lag()
        if lag.ready:
            return PlainTextResponse("ready\n")
        reason = lag.trouble or f"reading the log, {console.follower.rows_read} records so far"
        return PlainTextResponse(f"{reason}\n", 503)

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Guard(app, policy, RateLimit(console.settings.console_writes_per_second))


def _problem(status: int) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        return _answer(request, status, str(error))

    return answer


def _invalid(request: Request, error: Exception) -> Response:
    """What was given is not repeated: it may be large, secret, or not even text."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    told = "; ".join(
        f"{'.'.join(str(part) for part in fault['loc'][1:]) or 'body'}: {fault['msg']}"
        for fault in faults[:10]
    )
    safe = told.encode(errors="replace").decode()
    return _answer(request, 422, safe)


def _http_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _answer(request, error.status_code, str(error.detail), dict(error.headers or {}))


def _refused(request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, RefusedError) else 403
    return _answer(request, status, str(error))


def _answer(
    request: Request, status: int, detail: str, headers: dict[str, str] | None = None
) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"detail": detail}, status_code=status, headers=headers)
    return pages.error_page(request, HTTPStatus(status), detail, headers or {})
