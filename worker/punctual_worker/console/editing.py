"""What is pending or was rejected as text in a form, and headers back from it. Pure."""

import base64
from typing import Any, Final

from punctual_worker.console import models, payloads
from punctual_worker.console.records import Record
from punctual_worker.console.requests import user_headers
from punctual_worker.console.service import ConflictError, Console, Found
from punctual_worker.contract import headers as names
from punctual_worker.contract.times import format_ms

_EDITABLE_BYTES: Final = 1_000_000


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
        "misfire": "",
        "null_value": False,
        "paused": False,
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
    headers = user_headers(standing.headers)
    if not _typeable(headers):
        raise ConflictError("A header's name cannot be typed here: replace it through the API.")
    return empty_form() | {
        "verb": "replace",
        "id": plan.request_id,
        "to": plan.destination,
        "when": "" if plan.cron else format_ms(plan.wanted_ms),
        "cron": plan.cron,
        "timezone": plan.timezone,
        "misfire": plan.misfire,
        "spread": _spread_of(standing.headers) if plan.cron else "",
        "paused": plan.paused,
        "key": key,
        "value": value,
        "value_encoding": encoding,
        "null_value": standing.value is None,
        "headers": _header_lines(headers),
        "partition": "" if plan.partition is None else str(plan.partition),
        "expires_at": "" if plan.expires_ms is None else format_ms(plan.expires_ms),
    }


def repair_form(console: Console, record: Record) -> dict[str, Any] | None:
    """A form to repair a rejected request; None if it cannot be shown or typed."""
    kept = [header for header in record.headers if header[0] not in names.STALE_HEADERS]
    too_large = len(record.value or b"") > _EDITABLE_BYTES
    if console.settings.console_hide_payloads or too_large or not _typeable(kept):
        return None
    value, encoding = _typed(record.value)
    return {
        "value": value,
        "value_encoding": encoding,
        "null_value": record.value is None,
        "headers": _header_lines(kept),
    }


def _typeable(headers: list[tuple[str, bytes | None]]) -> bool:
    return all(name == name.strip() and not set(":\n") & set(name) for name, _ in headers)


def _typed(raw: bytes | None) -> tuple[str, str]:
    """Bytes as a person can edit them."""
    if raw is not None and len(raw) > _EDITABLE_BYTES:
        raise ConflictError("It is too large to be edited on a page: use the API.")
    known = payloads.show(raw, limit=_EDITABLE_BYTES)
    if known.encoding == "base64" or (known.text is not None and "\r" in known.text):
        return base64.b64encode(raw or b"").decode(), "base64"
    return known.text or "", "text"


def _spread_of(headers: list[tuple[str, bytes | None]]) -> str:
    return (dict(headers).get(names.SPREAD) or b"").decode(errors="replace")


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


def header_bodies(text: str) -> list[models.HeaderBody]:
    """Undo `_header_lines`."""
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
