"""Who may do what, before any route is reached: hosts, users, origins, sizes and rates.

Loopback without a token is for the person at this machine, but a page in their browser must not
be able to use it: hence the checks of host and origin also there.
"""

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from punctual_worker.console.writes import Author
from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings

SESSION_COOKIE: Final = "punctual-session"
FORM_COOKIE: Final = "punctual-form"
SESSION_SECONDS: Final = 12 * 3600
PROBES: Final = frozenset({"/livez", "/readyz", "/metrics"})
OPEN: Final = frozenset({"/login"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_USERS: Final = 10_000
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RefusedError(Exception):
    """Not allowed; with the status to answer."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


@dataclass(frozen=True)
class Asking:
    """What is known of a request before its body is read."""

    method: str
    path: str
    scheme: str
    headers: dict[str, str]
    """Names in lower case."""
    address: str


@dataclass(frozen=True)
class Policy:
    """The rules, from the settings."""

    token: str | None
    user_header: str
    proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    hosts: frozenset[str] | None
    """Host names that are answered; None for any."""
    origins: frozenset[str]
    """Further names that our own pages may have, behind a proxy that changes the host."""
    read_only: bool
    max_body_bytes: int
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    @property
    def authenticates(self) -> bool:
        """Whether anybody has to say who they are."""
        return self.token is not None or bool(self.user_header)


def make_policy(settings: Settings) -> Policy:
    """Rules from settings. Open to the network and without users, nothing can be changed."""
    token = _token(settings)
    loopback = settings.http_host in _LOOPBACK_NAMES or settings.http_host.startswith("127.")
    authenticates = token is not None or bool(settings.console_user_header)
    try:
        proxies = tuple(ipaddress.ip_network(text) for text in settings.console_trusted_proxies)
    except ValueError as error:
        raise PunctualError(f"console-trusted-proxies: {error}.") from error
    origins = frozenset(name.lower() for name in settings.console_hosts)
    hosts = _LOOPBACK_NAMES | {settings.http_host} | origins
    return Policy(
        token=token,
        user_header=settings.console_user_header.lower(),
        proxies=proxies,
        origins=origins,
        hosts=frozenset(hosts) if loopback and not authenticates else None,
        read_only=settings.console_read_only or not (loopback or authenticates),
        max_body_bytes=settings.request_max_bytes * 3 // 2 + 65_536,  # base64 and headers
    )


def check_host(policy: Policy, asking: Asking) -> None:
    """A page that has its name resolved to 127.0.0.1 is still another site."""
    if policy.hosts is None:
        return
    host = urlsplit(f"//{asking.headers.get('host', '')}").hostname or ""
    if host.lower() not in policy.hosts:
        raise RefusedError(421, "This host name is not served here; see console-hosts.")


def authenticate(policy: Policy, asking: Asking, *, now: float) -> Author:
    """Who asks; `RefusedError` if nobody knows."""
    if not policy.authenticates:
        return Author("local", asking.address)
    if policy.user_header and _from_proxy(policy, asking.address):
        user = asking.headers.get(policy.user_header, "").strip()
        if user:
            return Author(user[:200], asking.address)
    if policy.token is not None:
        scheme, _, given = asking.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same(given.strip(), policy.token):
            return Author("token", asking.address)
        session = cookie(asking, SESSION_COOKIE)
        if session and is_session(policy, session, now=now):
            return Author("token", asking.address)
    raise RefusedError(401, "Say who you are.", {"www-authenticate": "Bearer"})


def check_write(policy: Policy, asking: Asking) -> None:
    """Whether a change may be asked for at all, and by a page of ours."""
    if policy.read_only and asking.path not in (*OPEN, "/logout"):
        raise RefusedError(403, "This console is read-only.")
    site = asking.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        raise RefusedError(403, "This was sent by a page of another site.")
    origin = asking.headers.get("origin")
    if origin is None:
        return
    parts = urlsplit(origin)
    if parts.netloc != asking.headers.get("host") and parts.hostname not in policy.origins:
        raise RefusedError(403, "This was sent by a page of another site.")


def new_session(policy: Policy, *, now: float) -> str:
    """A cookie for who has given the token; worthless after a restart."""
    expires = str(int(now + SESSION_SECONDS))
    return f"{expires}.{_sign(policy, 'session', expires)}"


def is_session(policy: Policy, session: str, *, now: float) -> bool:
    """Whether we gave it and it still holds."""
    expires, _, signature = session.partition(".")
    if not same(signature, _sign(policy, "session", expires)):
        return False
    return int(expires) > now


def form_token(policy: Policy, nonce: str) -> str:
    """What a form must carry, for who has this nonce as a cookie."""
    return _sign(policy, "form", nonce)


def same(one: str, other: str) -> bool:
    """Compared in a time that tells nothing."""
    return hmac.compare_digest(one.encode(), other.encode())


def cookie(asking: Asking, name: str) -> str:
    """A cookie's value; empty if it is not there."""
    try:
        found = SimpleCookie(asking.headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


class RateLimit:
    """A bucket of permissions for each user, refilled steadily."""

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, user: str) -> None:
        """Use a permission up; `RefusedError` if none is left."""
        burst = 2 * self._per_second
        with self._lock:
            now = self._clock()
            left, at = self._buckets.get(user, (burst, now))
            left = min(left + (now - at) * self._per_second, burst)
            if left < 1:
                raise RefusedError(429, "Too many changes at once.", {"retry-after": "1"})
            if len(self._buckets) > _MOST_USERS:
                self._buckets.clear()
            self._buckets[user] = (left - 1, now)


def _sign(policy: Policy, purpose: str, text: str) -> str:
    return hmac.new(policy.secret, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def _from_proxy(policy: Policy, address: str) -> bool:
    try:
        return any(ipaddress.ip_address(address) in network for network in policy.proxies)
    except ValueError:
        return False


def _token(settings: Settings) -> str | None:
    if settings.console_token_file is not None:
        try:
            token = settings.console_token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PunctualError(
                f"console-token-file: {settings.console_token_file} cannot be read: {error}."
            ) from error
    else:
        token = settings.console_token.get_secret_value() if settings.console_token else ""
        if settings.console_token is None:
            return None
    if len(token) < 8:
        raise PunctualError("The console's token is too short: want at least 8 characters.")
    return token
