"""The rules of `security`, around every route."""

import time
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from punctual_worker.console import security
from punctual_worker.console.security import Asking, Policy, RateLimit, RefusedError

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class _TooLargeError(Exception):
    pass


class Guard:
    """Lets through what may pass; adds the headers that browsers are to obey."""

    def __init__(self, app: ASGIApp, policy: Policy, rate: RateLimit) -> None:
        self._app = app
        self._policy = policy
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in security.HEADERS.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        asking = _asking(scope)
        try:
            self._admit(scope, asking)
        except RefusedError as refusal:
            await _refusal(asking, refusal)(scope, receive, send_safely)
            return
        try:
            await self._app(scope, _limited(receive, self._policy.max_body_bytes), send_safely)
        except _TooLargeError:
            too_large = RefusedError(413, "The request is too large.")
            await _refusal(asking, too_large)(scope, receive, send_safely)

    def _admit(self, scope: Scope, asking: Asking) -> None:
        if asking.path in security.PROBES:
            return
        security.check_host(self._policy, asking)
        is_open = asking.path in security.OPEN or asking.path.startswith("/static/")
        if not is_open:
            scope.setdefault("state", {})["author"] = security.authenticate(
                self._policy, asking, now=time.time()
            )
        if asking.method in _SAFE:
            return
        security.check_write(self._policy, asking)
        length = asking.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._policy.max_body_bytes:
            raise RefusedError(413, "The request is too large.")
        author = scope.get("state", {}).get("author")
        self._rate.take(f"{author.user}@{author.address}" if author else asking.address)


def _asking(scope: Scope) -> Asking:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers[name.decode("latin-1").lower()] = value.decode("latin-1")
    client: Any = scope.get("client") or ("", 0)
    return Asking(scope["method"], scope["path"], scope["scheme"], headers, str(client[0]))


def _refusal(asking: Asking, refusal: RefusedError) -> Response:
    if asking.path.startswith("/api/"):
        return JSONResponse(
            {"detail": refusal.detail}, status_code=refusal.status, headers=refusal.headers
        )
    if refusal.status == 401 and asking.method in _SAFE:
        return RedirectResponse(f"/login?next={quote(asking.path)}", status_code=303)
    return PlainTextResponse(refusal.detail, status_code=refusal.status, headers=refusal.headers)


def _limited(receive: Receive, limit: int) -> Receive:
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise _TooLargeError
        return message

    return receive_some
