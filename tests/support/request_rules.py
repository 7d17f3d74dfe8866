"""What the contract says about a request, in plain Python: the oracle of the intake tests.

Written from the contract and the grammar in words, by other means than the Spark expressions and
without sharing code or constants with them (only the record type and the names of the contract).
`judge` says which plan fields an accepted request must have, or which codes a refused one.
"""

import calendar
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

PREFIX = "x-scheduler-"
KNOWN = {
    *("action", "deliver-to", "deliver-at", "delay", "cron", "timezone", "request-id"),
    *("deliver-partition", "expires-at", "spread", "misfire"),
}
STALE = {"scheduled-for", "source", "error", "error-code", "rejected-at"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VERBS = {"add": "A", "replace": "R", "cancel": "C", "pause": "P", "resume": "U"}
DIGITS = set("0123456789")
TOPIC_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True)
class Request:
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class World:
    """What the judgement depends on beside the request."""

    own_topics: frozenset[str]
    allowed: tuple[str, ...] = ()
    horizon_days: int = 36_525
    max_record_bytes: int = 1_048_588 + 262_144


@dataclass
class Verdict:
    codes: set[str] = field(default_factory=set)
    plan: dict[str, str] = field(default_factory=dict)


class Absent:
    """Stands for a header that is not there, where None is a null value."""


def judge(request: Request, world: World) -> Verdict:
    found: dict[str, bytes | None] = {}
    codes: set[str] = set()
    for name, value in request.headers:
        if not name.startswith(PREFIX):
            continue
        short = name[len(PREFIX) :]
        if short in KNOWN:
            found[short] = value
        elif short not in STALE:
            codes.add("unknown-header")
    if _too_large(request, world):
        codes.add("too-large")

    verb = "A"
    if "action" in found:
        text = _text(found["action"], codes)
        if text is not None:
            verb = VERBS.get(text.lower(), "")
            if not verb:
                codes.add("unknown-action")
        else:
            verb = ""

    request_id = ""
    if "request-id" in found:
        text = _text(found["request-id"], codes)
        if text is not None:
            if 1 <= len(text.encode()) <= 255:
                request_id = text
            else:
                codes.add("invalid-request-id")
    elif verb not in ("A", ""):
        codes.add("missing-request-id")

    plan = {"verb": verb, "request_id": request_id, "due_ms": "0"}
    if request.value is None:
        plan["flags"] = "n"
    if verb in ("A", "R"):
        schedule_id = request_id or f"0/{request.partition}/{request.offset}"
        plan.update(_delivery(request, world, found, codes, zlib.crc32(schedule_id.encode())))
    return Verdict(codes=codes) if codes else Verdict(plan=plan)


def _delivery(
    request: Request,
    world: World,
    found: dict[str, bytes | None],
    codes: set[str],
    hashed: int,
) -> dict[str, str]:
    plan: dict[str, str] = {}
    plan["destination"] = _destination(found, world, codes)

    def parse(short: str, code: str, parser):  # type: ignore[no-untyped-def]
        if short not in found:
            return None
        text = _text(found[short], codes)
        if text is None:
            return None
        result = parser(text)
        if result is None:
            codes.add(code)
        return result

    at = parse("deliver-at", "invalid-deliver-at", instant)
    delay = parse("delay", "invalid-delay", duration)
    cron = parse("cron", "invalid-cron", _cron)
    spread = parse("spread", "invalid-spread", duration)
    expires = parse("expires-at", "invalid-expires-at", instant)
    partition = parse("deliver-partition", "invalid-deliver-partition", _partition)
    zone = parse("timezone", "invalid-timezone", _zone)
    misfire = parse("misfire", "invalid-cron", _misfire)
    if "cron" not in found:
        if "timezone" in found:
            codes.add("invalid-timezone")
        if "misfire" in found:
            codes.add("invalid-cron")
    if delay is not None and request.timestamp_ms < 0:
        codes.add("invalid-delay")
        delay = None

    ways = [name for name in ("deliver-at", "delay", "cron") if name in found]
    if not ways:
        codes.add("missing-deliver-at")
    elif len(ways) > 1:
        codes.add("conflicting-times")
    else:
        due = at
        if delay is not None:
            due = request.timestamp_ms + delay
        if due is not None and spread:
            due += hashed % spread
        if cron is not None:
            due = request.timestamp_ms
        if due is not None:
            limit = world.horizon_days * 24 * 3600 * 1000
            if request.timestamp_ms >= 0 and due - request.timestamp_ms > limit:
                codes.add("deliver-at-too-far")
            if due >= 253_402_300_800_000:
                codes.add("deliver-at-too-far")
            plan["due_ms"] = str(due)
    if partition is not None:
        plan["partition"] = str(partition)
    if expires is not None:
        plan["expires_ms"] = str(expires)
    plan.update(cron=cron or "", timezone=zone or "", misfire=misfire or "")
    return plan


def _too_large(request: Request, world: World) -> bool:
    total = len(request.key or b"") + len(request.value or b"") + 4096
    for name, value in request.headers:
        total += len(name.encode()) + len(value or b"") + 10
    return total > world.max_record_bytes


def _text(value: bytes | None, codes: set[str]) -> str | None:
    """Text of a header; a null value is as good as an empty one: never what is wanted."""
    try:
        return (value or b"").decode()
    except UnicodeDecodeError:
        codes.add("not-utf8")
        return None


def _destination(found: dict[str, bytes | None], world: World, codes: set[str]) -> str:
    if "deliver-to" not in found:
        codes.add("missing-deliver-to")
        return ""
    topic = _text(found["deliver-to"], codes)
    if topic is None:
        return ""
    if not 1 <= len(topic) <= 249 or set(topic) - TOPIC_CHARACTERS or topic in (".", ".."):
        codes.add("invalid-deliver-to")
    elif topic in world.own_topics | BROKERS or not (
        not world.allowed or any(_wildcard(pattern, topic) for pattern in world.allowed)
    ):
        codes.add("destination-not-allowed")
    return topic


BROKERS = {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}


def _wildcard(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(_wildcard(pattern[1:], text[i:]) for i in range(len(text) + 1))
    return bool(text) and text[0] == pattern[0] and _wildcard(pattern[1:], text[1:])


def _number(text: str, *, least: int, most: int) -> int | None:
    if not least <= len(text) <= most or set(text) - DIGITS:
        return None
    return int(text)


def instant(text: str) -> int | None:
    """Milliseconds of `YYYY-MM-DDThh:mm[:ss[.fraction]][zone]`."""
    date, separator, rest = text[:10], text[10:11], text[11:]
    if separator not in ("T", "t") or date[4:5] != "-" or date[7:8] != "-":
        return None
    year, month, day = (
        _number(date[:4], least=4, most=4),
        _number(date[5:7], least=2, most=2),
        _number(date[8:], least=2, most=2),
    )
    if not year or not month or month > 12 or not day:
        return None
    if day > calendar.monthrange(year, month)[1]:
        return None
    clock, offset = _split_zone(rest)
    if offset is None:
        return None
    parts = clock.split(":")
    if not 2 <= len(parts) <= 3:
        return None
    second_text, fraction = "00", ""
    if len(parts) == 3:
        second_text = parts[2][:2]
        if len(parts[2]) > 2:
            if parts[2][2] not in ".,":
                return None
            fraction = parts[2][3:]
            if _number(fraction, least=1, most=9) is None:
                return None
    hour, minute, second = (
        _number(part, least=2, most=2) for part in (parts[0], parts[1], second_text)
    )
    if hour is None or minute is None or second is None or hour > 23 or minute > 59 or second > 59:
        return None
    if (year, month, day) == (1, 1, 1) and "+" in rest:
        return None
    if (year, month, day) == (9999, 12, 31) and "-" in rest:
        return None
    days = (datetime(year, month, day, tzinfo=UTC) - EPOCH).days
    whole = ((days * 24 + hour) * 60 + minute - offset) * 60 + second
    nanos = int(fraction.ljust(9, "0") or "0")
    result = whole * 1000 + -(-nanos // 1_000_000)
    return None if result >= 253_402_300_800_000 else result


def _split_zone(rest: str) -> tuple[str, int | None]:
    """Clock text, and minutes east of Greenwich (None when they are not right)."""
    if rest[-1:] in ("Z", "z"):
        return rest[:-1], 0
    at = max(rest.rfind("+"), rest.rfind("-"))
    if at < 0:
        return rest, 0
    clock, zone = rest[:at], rest[at + 1 :]
    hours, minutes = zone[:2], zone[2:]
    if minutes.startswith(":"):
        minutes = minutes[1:] or "?"
    h = _number(hours, least=2, most=2)
    m = _number(minutes, least=2, most=2) if minutes else 0
    if h is None or m is None or m > 59 or h * 60 + m > 18 * 60:
        return clock, None
    return clock, (h * 60 + m) * (1 if rest[at] == "+" else -1)


def duration(text: str) -> int | None:
    """Milliseconds of an ISO 8601 duration or of a number with a unit."""
    if text[:1] in ("P", "p"):
        return _iso_duration(text[1:].upper())
    for unit, length, digits in (
        ("ms", timedelta(milliseconds=1), 15),
        ("s", timedelta(seconds=1), 10),
        ("m", timedelta(minutes=1), 10),
        ("h", timedelta(hours=1), 10),
        ("d", timedelta(days=1), 10),
    ):
        if text.endswith(unit):
            number = _number(text[: -len(unit)], least=1, most=digits)
            return None if number is None else number * (length // timedelta(milliseconds=1))
    return None


def _iso_duration(text: str) -> int | None:
    day_part, has_time, time_part = text.partition("T")
    if (has_time and not time_part) or not text:
        return None
    total = 0
    for part, units in ((day_part, "WD"), (time_part, "HMS")):
        while part:
            length = next((i for i, c in enumerate(part) if c in units), None)
            if length is None:
                return None
            unit = part[length]
            number, part = part[:length], part[length + 1 :]
            units = units[units.index(unit) + 1 :]
            fraction = ""
            if unit == "S":
                for mark in ".,":
                    if mark in number:
                        number, _, fraction = number.partition(mark)
                        if _number(fraction, least=1, most=9) is None:
                            return None
            count = _number(number, least=1, most=10)
            if count is None:
                return None
            seconds = {"W": 604800, "D": 86400, "H": 3600, "M": 60, "S": 1}[unit]
            total += count * seconds * 1000
            total += -(-int(fraction.ljust(9, "0") or "0") // 1_000_000)
    return total


def _cron(text: str) -> str | None:
    if len(text) > 255 or text != text.strip(" \t"):
        return None
    fields = text.replace("\t", " ").split(" ")
    fields = [part for part in fields if part]
    legal = LETTERS | DIGITS | set("*,/?#-")
    return text if len(fields) in (5, 6) and not set("".join(fields)) - legal else None


def _zone(text: str) -> str | None:
    parts = text.split("/")
    if len(text) > 64 or len(parts) > 3 or not all(parts):
        return None
    for index, part in enumerate(parts):
        first = LETTERS if index == 0 else LETTERS | DIGITS
        if part[0] not in first or set(part) - LETTERS - DIGITS - set("+_-"):
            return None
    return text


def _misfire(text: str) -> str | None:
    return text.lower() if text.isascii() and text.lower() in ("once", "all", "skip") else None


def _partition(text: str) -> int | None:
    number = _number(text, least=1, most=10)
    return number if number is not None and number < 2**31 else None
