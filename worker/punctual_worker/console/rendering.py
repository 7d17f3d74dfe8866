"""Templates: everything is escaped, and every page knows its user, its app and how fresh it is."""

import secrets
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from punctual_worker.console import security
from punctual_worker.console.forms import Form
from punctual_worker.console.overview import Overviews
from punctual_worker.console.security import Asking, Policy, RefusedError
from punctual_worker.console.service import Console

DIRECTORY: Final = Path(__file__).parent
_UNITS: Final = ("B", "kB", "MB", "GB")


class Renderer:
    """Makes pages."""

    def __init__(self, console: Console, policy: Policy, overviews: Overviews) -> None:
        self.console = console
        self.policy = policy
        self._overviews = overviews
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(DIRECTORY / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            thousands=lambda number: f"{number:,}".replace(",", "\u202f"), size=_size, utc=_utc
        )

    def page(
        self, request: Request, template: str, *, status: int = 200, **context: Any
    ) -> Response:
        """A page; its forms work for who has the cookie that comes with it."""
        nonce = security.cookie(_asking(request), security.FORM_COOKIE)
        fresh = "" if nonce else secrets.token_hex(16)
        author = getattr(request.state, "author", None)
        html = self._templates.get_template(template).render(
            app_id=self.console.settings.app_id,
            path=request.url.path,
            user=author.user if author else "",
            login=self.policy.token is not None and author is not None,
            read_only=self.policy.read_only,
            hide_payloads=self.console.settings.console_hide_payloads,
            status_of_view=self._overviews.status(),
            form_token=security.form_token(self.policy, nonce or fresh),
            query=lambda **changes: _query(request, changes),
            **context,
        )
        response = HTMLResponse(html, status_code=status)
        if fresh:
            response.set_cookie(
                security.FORM_COOKIE,
                fresh,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
        return response

    def check_form(self, request: Request, form: Form) -> None:
        """Whether a form of ours was sent by who was given it."""
        nonce = security.cookie(_asking(request), security.FORM_COOKIE)
        given = form.text("form-token")
        if not nonce or not security.same(given, security.form_token(self.policy, nonce)):
            raise RefusedFormError(403, "This form is too old: load its page again.")


class RefusedFormError(RefusedError):
    """A form that was not ours, or is too old."""


def _asking(request: Request) -> Asking:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Asking(request.method, request.url.path, request.url.scheme, headers, "")


def _query(request: Request, changes: dict[str, str | None]) -> str:
    """This page's query with changes; empty ones are left out."""
    merged = {**request.query_params, **{n.rstrip("_"): v for n, v in changes.items()}}
    return urlencode({name: value for name, value in merged.items() if value})


def _size(number: int | None) -> str:
    if number is None:
        return "null"
    amount = float(number)
    for unit in _UNITS[:-1]:
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} {_UNITS[-1]}"


def _utc(text: str | None) -> str:
    """`2026-11-18T20:00:00.000Z` for reading."""
    return "" if text is None else text.replace("T", " ").replace("Z", " UTC")
