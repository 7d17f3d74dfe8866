"""What the pages send: forms into requests, and what became of them as a page."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from punctual_worker.console import editing, models, payloads, security, shapes
from punctual_worker.console.api_writes import plan_job
from punctual_worker.console.bulk import BulkError
from punctual_worker.console.service import (
    ConflictError,
    Console,
    Found,
    InvalidError,
    NotFoundError,
    fires_of,
)
from punctual_worker.console.writes import Author, Effect
from punctual_worker.contract import headers as names
from punctual_worker.contract.times import format_ms

if TYPE_CHECKING:
    from punctual_worker.console.rendering import Renderer

_WAIT_SECONDS: Final = 8.0
_MOST_FIELDS: Final = 100
_PREVIEWED: Final = 5


@dataclass(frozen=True)
class Form:
    """The fields of a form."""

    fields: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, body: bytes) -> "Form":
        """From the body of a POST; line ends as everywhere else."""
        try:
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
            )
        except ValueError as error:
            raise InvalidError("The form cannot be read.") from error
        return cls({name: value.replace("\r\n", "\n") for name, value in pairs})

    def text(self, name: str) -> str:
        """A field, without spaces around; empty if it is not there."""
        return self.fields.get(name, "").strip()

    def raw(self, name: str) -> str:
        """A field as it was typed."""
        return self.fields.get(name, "")

    def optional(self, name: str) -> str | None:
        """A field, or None if it is empty."""
        return self.text(name) or None

    def number(self, name: str) -> int | None:
        """A whole number, or None if it is empty."""
        text = self.text(name)
        if not text:
            return None
        if not (text.isascii() and text.isdecimal()) or len(text) > 18:
            raise InvalidError(f"{name}: {text[:50]!r} is given, want a whole number.")
        return int(text)


def handle(renderer: "Renderer", request: Request, path: str, form: Form) -> Response:
    """A form that was sent to `path`."""
    handler = _HANDLERS.get(path)
    if handler is None and path.startswith("/rejections/"):
        handler = _resend
    if handler is None:
        raise NotFoundError("There is no such form.")
    try:
        return handler(renderer, request, form)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
        )
        raise InvalidError(faults) from error


def shown(console: Console, found: Found) -> dict[str, Any]:
    """What the page of a schedule shows."""
    detail = shapes.detail(console, found)
    limit, hidden = (
        console.settings.console_payload_max_bytes,
        console.settings.console_hide_payloads,
    )
    value = payloads.show(found.standing.value, limit=limit, hidden=hidden)
    return {"detail": detail, "schedule": detail.schedule, "value": value}


def _create(renderer: "Renderer", request: Request, form: Form) -> Response:
    if "preview" in form.fields:
        return _preview(renderer, request, form)
    console, author = renderer.console, _author(request)
    when = form.optional("when")
    cron = form.optional("cron")
    is_delay = when is not None and (when[:1].upper() == "P" or when[-1:] in "smhd")
    null = "null-value" in form.fields
    body = models.CreateBody(
        deliver_to=form.text("to"),
        deliver_at=None if is_delay else when,
        delay=when if is_delay else None,
        cron=cron,
        timezone=form.optional("timezone") if cron else None,
        misfire=_misfire(form) if cron else None,
        id=form.optional("id"),
        key=form.raw("key") or None,
        value=None if null else form.raw("value"),
        value_encoding="base64" if form.text("value-encoding") == "base64" else "text",
        headers=editing.header_bodies(form.raw("headers")),
        partition=form.number("partition"),
        expires_at=form.optional("expires-at"),
        spread=form.optional("spread"),
    )
    if form.text("verb") == "replace":
        if body.id is None:
            raise InvalidError("id: it is needed to replace.")
        delivery = models.DeliveryBody(
            **{name: getattr(body, name) for name in models.DeliveryBody.model_fields}
        )
        effect = console.replace(body.id, delivery, author, _WAIT_SECONDS)
        return _result(renderer, request, "Replace", effect, body.id)
    effect = console.create(body, author, _WAIT_SECONDS)
    return _result(renderer, request, "Create", effect, body.id)


def _preview(renderer: "Renderer", request: Request, form: Form) -> Response:
    """The same form again, with the fires that its expression leads to; nothing is sent."""
    typed = {name.replace("-", "_"): form.raw(name) for name in form.fields}
    again = editing.empty_form() | {
        name: typed[name] for name in editing.empty_form() if name in typed
    }
    again["null_value"] = "null-value" in form.fields
    again["paused"] = "paused" in form.fields
    cron, zone, now = form.text("cron"), form.text("timezone"), renderer.console.now_ms()
    fires, fault = [], "" if cron else "No cron expression is given."
    try:
        fires = fires_of(cron, zone, after_ms=now, number=_PREVIEWED) if cron else []
    except InvalidError as error:
        fault = str(error)
    return renderer.page(
        request,
        "create.html",
        form=again,
        fires=[format_ms(fire) for fire in fires],
        fault=fault,
    )


def _cancel(renderer: "Renderer", request: Request, form: Form) -> Response:
    effect = renderer.console.cancel(form.raw("id"), _author(request), _WAIT_SECONDS)
    return _result(renderer, request, "Cancel", effect, form.raw("id"))


def _pause(renderer: "Renderer", request: Request, form: Form) -> Response:
    effect = renderer.console.pause(form.raw("id"), _author(request), _WAIT_SECONDS)
    return _result(renderer, request, "Pause", effect, form.raw("id"))


def _resume(renderer: "Renderer", request: Request, form: Form) -> Response:
    effect = renderer.console.resume(form.raw("id"), _author(request), _WAIT_SECONDS)
    return _result(renderer, request, "Resume", effect, form.raw("id"))


def _reschedule(renderer: "Renderer", request: Request, form: Form) -> Response:
    effect = renderer.console.reschedule(
        form.raw("id"), form.text("when"), _author(request), _WAIT_SECONDS
    )
    return _result(renderer, request, "Reschedule", effect, form.raw("id"))


def _run_now(renderer: "Renderer", request: Request, form: Form) -> Response:
    effect = renderer.console.run_now(_author(request), _WAIT_SECONDS, request_id=form.raw("id"))
    return _result(renderer, request, "Run now", effect, form.raw("id"))


def _resend(renderer: "Renderer", request: Request, form: Form) -> Response:
    parts = request.url.path.split("/")
    if len(parts) != 5 or parts[4] != "resend" or not (parts[2] + parts[3]).isdecimal():
        raise NotFoundError("There is no such form.")
    changed: dict[str, Any] = {"headers": editing.header_bodies(form.raw("headers"))}
    if "null-value" in form.fields:
        changed["value"] = None
    elif "value" in form.fields:
        changed["value"] = form.raw("value")
        changed["value_encoding"] = "base64" if form.text("value-encoding") == "base64" else "text"
    effect = renderer.console.resend(
        int(parts[2]), int(parts[3]), models.ResendBody(**changed), _author(request), _WAIT_SECONDS
    )
    ids = [h.value for h in changed["headers"] if h.name == names.REQUEST_ID]
    return _result(renderer, request, "Resend", effect, ids[-1] if ids else None)


def _plan(renderer: "Renderer", request: Request, form: Form) -> Response:
    verb: Any = form.text("verb")
    when = form.optional("when") if verb == "reschedule" else None
    is_shift = when is not None and when[:1] in "+-"
    body = models.BulkBody(
        verb=verb,
        filters=models.FiltersBody(
            id_prefix=form.raw("id"),
            destination=form.text("to"),
            due_from=form.optional("from"),
            due_to=form.optional("until"),
            paused={"yes": True, "no": False}.get(form.text("paused")),
        ),
        deliver_at=None if is_shift else when,
        shift=when if is_shift else None,
    )
    return RedirectResponse(
        f"/bulk/{plan_job(renderer.console, body, _author(request)).token}", status_code=303
    )


def _confirm(renderer: "Renderer", request: Request, form: Form) -> Response:
    count, token = form.number("count"), form.text("token")
    try:
        renderer.console.bulk.confirm(token, -1 if count is None else count, _author(request))
    except BulkError as error:
        raise ConflictError(str(error)) from error
    return RedirectResponse(f"/bulk/{quote(token)}", status_code=303)


def _stop(renderer: "Renderer", request: Request, form: Form) -> Response:
    try:
        renderer.console.bulk.stop_job(form.text("token"), _author(request))
    except BulkError as error:
        raise ConflictError(str(error)) from error
    return RedirectResponse(f"/bulk/{quote(form.text('token'))}", status_code=303)


def _login(renderer: "Renderer", request: Request, form: Form) -> Response:
    policy = renderer.policy
    if policy.token is None or not security.same(form.text("token"), policy.token):
        return renderer.page(request, "login.html", status=403, wrong=True)
    path = request.query_params.get("next", "/")
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\"))
    response = RedirectResponse(path if is_ours else "/", status_code=303)
    response.set_cookie(
        security.SESSION_COOKIE,
        security.new_session(policy, now=renderer.console.now_ms() / 1000),
        max_age=security.SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def _logout(renderer: "Renderer", request: Request, form: Form) -> Response:
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(security.SESSION_COOKIE)
    return response


_HANDLERS: Final[dict[str, Callable[["Renderer", Request, Form], Response]]] = {
    "/create": _create,
    "/schedule/cancel": _cancel,
    "/schedule/reschedule": _reschedule,
    "/schedule/pause": _pause,
    "/schedule/resume": _resume,
    "/schedule/run-now": _run_now,
    "/bulk/plan": _plan,
    "/bulk/confirm": _confirm,
    "/bulk/stop": _stop,
    "/login": _login,
    "/logout": _logout,
}


def _result(
    renderer: "Renderer", request: Request, title: str, effect: Effect, request_id: str | None
) -> Response:
    status = 422 if effect.outcome == "rejected" else 200
    rejection = (
        renderer.console.stories.rejection_of(effect.source)
        if effect.outcome == "rejected"
        else None
    )
    return renderer.page(
        request,
        "result.html",
        status=status,
        title=title,
        effect=effect,
        id=request_id,
        rejection=rejection,
    )


def _author(request: Request) -> Author:
    author: Author = request.state.author
    return author


def _misfire(form: Form) -> Any:
    return form.optional("misfire")
