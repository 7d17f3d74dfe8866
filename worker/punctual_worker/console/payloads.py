"""Bytes as people see them, and back. Pure.

Text where it is text, base64 otherwise. What is shown is cut at a limit and says so: a page or an
answer never carries megabytes by accident.
"""

import base64
import binascii
import json
from typing import Any, Final, Literal, NamedTuple

Encoding = Literal["null", "text", "json", "base64", "hidden"]
_UNSHOWABLE: Final = frozenset(map(chr, range(32))) - set("\t\n\r")


class PayloadError(ValueError):
    """What was given cannot be turned into bytes; the message says why."""


class Shown(NamedTuple):
    """A payload as it is shown."""

    encoding: Encoding
    text: str | None
    size: int
    truncated: bool

    @property
    def pretty(self) -> str:
        """For reading: JSON with line breaks."""
        if self.encoding == "json" and self.text is not None:
            return json.dumps(json.loads(self.text), indent=2, ensure_ascii=False)
        return self.text or ""


def show(raw: bytes | None, *, limit: int, hidden: bool = False) -> Shown:
    """A key, value or header as text, JSON or base64, at most `limit` bytes of it."""
    if raw is None:
        return Shown("null", None, 0, truncated=False)
    if hidden:
        return Shown("hidden", None, len(raw), truncated=False)
    truncated = len(raw) > limit
    text = _as_text(raw[:limit] if truncated else raw, cut=truncated)
    if text is None:
        return Shown("base64", base64.b64encode(raw[:limit]).decode(), len(raw), truncated)
    if not truncated and _is_json_document(text):
        return Shown("json", text, len(raw), truncated=False)
    return Shown("text", text, len(raw), truncated)


def to_bytes(value: Any, encoding: Literal["text", "base64"] | None, *, what: str) -> bytes | None:
    """Bytes of what an API body or a form gives; anything but text is taken as JSON."""
    if value is None:
        return None
    if encoding == "base64":
        if not isinstance(value, str):
            raise PayloadError(f"{what}: base64 is text, {type(value).__name__} is given")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise PayloadError(f"{what}: not base64 ({error})") from error
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise PayloadError(f"{what}: has characters that do not exist in UTF-8") from error


def _as_text(raw: bytes, *, cut: bool) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        if not cut or error.start < len(raw) - 3:
            return None
        text = raw[: error.start].decode()  # the limit fell inside a character
    return None if _UNSHOWABLE.intersection(text) else text


def _is_json_document(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
