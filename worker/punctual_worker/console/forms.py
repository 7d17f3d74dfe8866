"""What the pages send: forms into requests, and what became of them as a page."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from punctual_worker.console import models, payloads, security, shapes
from punctual_worker.console.api_writes import plan_job
from punctual_worker.console.bulk import BulkError
from punctual_worker.console.records import Record
from punctual_worker.console.requests import user_headers
from punctual_worker.console.service import (
    ConflictError,
    Console,
    Found,
    InvalidError,
    NotFoundError,
)
from punctual_worker.console.writes import Author, Effect
from punctual_worker.contract import headers as names
from punctual_worker.contract.times import format_ms

if TYPE_CHECKING:
    from punctual_worker.console.rendering import Renderer

_WAIT_SECONDS: Final = 8.0
_MOST_FIELDS: Final = 100
_EDITABLE_BYTES: Final = 1_000_000


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


def empty_form() -> dict[str, Any]:
    """A form to create."""
    return {"verb": "create", "id": "", "to": "", "when": "", "key": "", "value": ""} | {
        "value_encoding": "text",
        "headers": "",
        "partition": "",
        "expires_at": "",
        "spread": "",
        "cron": "",
        "timezone": "",
        "null_value": False,
    }


def edit_form(console: Console, found: Found) -> dict[str, Any]:
    """A form to replace what stands, filled with it; only where it can be typed."""
    standing, plan = found.standing, found.standing.plan
    if console.settings.console_hide_payloads:
        raise ConflictError("Payloads are hidden here, so it cannot be edited.")
    if not plan.request_id:
        raise ConflictError("It has no id, so it cannot be replaced.")
    value, encoding = _typed(standing.value)
    key, key_encoding = _typed(standing.key)
    if key_encoding != "text":
        raise ConflictError("Its key is not text: replace it through the API.")
    return empty_form() | {
        "verb": "replace",
        "id": plan.request_id,
        "to": plan.destination,
        "when": format_ms(plan.wanted_ms),
        "key": key,
        "value": value,
        "value_encoding": encoding,
        "null_value": standing.value is None,
        "headers": _header_lines(user_headers(standing.headers)),
        "partition": "" if plan.partition is None else str(plan.partition),
        "expires_at": "" if plan.expires_ms is None else format_ms(plan.expires_ms),
    }


def repair_form(console: Console, record: Record) -> dict[str, Any] | None:
    """A form to repair a rejected request; None if it cannot be shown or typed."""
    kept = [header for header in record.headers if header[0] not in names.STALE_HEADERS]
    typeable = all(name == name.strip() and not set(":\n") & set(name) for name, _ in kept)
    too_large = len(record.value or b"") > _EDITABLE_BYTES
    if console.settings.console_hide_payloads or too_large or not typeable:
        return None
    value, encoding = _typed(record.value)
    return {
        "value": value,
        "value_encoding": encoding,
        "null_value": record.value is None,
        "headers": _header_lines(kept),
    }


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
        id=form.optional("id"),
        key=form.raw("key") or None,
        value=None if null else form.raw("value"),
        value_encoding="base64" if form.text("value-encoding") == "base64" else "text",
        headers=_header_bodies(form.raw("headers")),
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


def _cancel(renderer: "Renderer", request: Request, form: Form) -> Response:
    effect = renderer.console.cancel(form.raw("id"), _author(request), _WAIT_SECONDS)
    return _result(renderer, request, "Cancel", effect, form.raw("id"))


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
    changed: dict[str, Any] = {"headers": _header_bodies(form.raw("headers"))}
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
    when, is_cancel = form.optional("when"), form.text("verb") == "cancel"
    is_shift = when is not None and when[:1] in "+-"
    body = models.BulkBody(
        verb="cancel" if is_cancel else "reschedule",
        filters=models.FiltersBody(
            id_prefix=form.raw("id"),
            destination=form.text("to"),
            due_from=form.optional("from"),
            due_to=form.optional("until"),
        ),
        deliver_at=None if is_cancel or is_shift else when,
        shift=when if is_shift and not is_cancel else None,
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


def _typed(raw: bytes | None) -> tuple[str, str]:
    """Bytes as a person can edit them."""
    if raw is not None and len(raw) > _EDITABLE_BYTES:
        raise ConflictError("It is too large to be edited on a page: use the API.")
    known = payloads.show(raw, limit=_EDITABLE_BYTES)
    if known.encoding == "base64" or (known.text is not None and "\r" in known.text):
        return base64.b64encode(raw or b"").decode(), "base64"
    return known.text or "", "text"


def _header_lines(headers: list[tuple[str, bytes | None]]) -> str:
    """`name: value`, a line each; `name` alone for a null; `name:base64: …` where it is no text."""
    lines = []
    for name, raw in headers:
        known = payloads.show(raw, limit=_EDITABLE_BYTES)
        if known.encoding == "null":
            lines.append(name)
        elif known.encoding == "base64" or "\n" in (known.text or ""):
            lines.append(f"{name}:base64: {base64.b64encode(raw or b'').decode()}")
        else:
            lines.append(f"{name}: {known.text}")
    return "\n".join(lines)


def _header_bodies(text: str) -> list[models.HeaderBody]:
    found = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if value.startswith("base64: "):
            found.append(
                models.HeaderBody(
                    name=name.strip(),
                    value=value.removeprefix("base64: ").strip(),
                    encoding="base64",
                )
            )
        else:
            given = value.removeprefix(" ") if colon else None
            found.append(models.HeaderBody(name=name.strip(), value=given))
    return found
