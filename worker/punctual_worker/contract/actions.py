"""The action record: what intake writes for the dispatcher, and the dispatcher for itself.

- key: the request's coordinates `source-tag/partition/offset`; `…#n` for re-armed work
- partition: CRC-32 of the schedule id modulo the partition count, so that all actions on one id are
  in one partition, in order
- value: the user's bytes, empty for a null value (a null here would be a tombstone)
- headers: the request's own, untouched but for stale ones, then the user's key, then the plan

The plan is text, fields separated by `|`; the request id is the last field because it alone may
contain the separator. Text because intake builds it with plain JVM expressions and a person can
read it in any Kafka tool.
"""

import zlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Self

from punctual_worker.contract import headers as names
from punctual_worker.contract.times import FIRST_MS, LAST_MS

Headers = list[tuple[str, bytes | None]]

PLAN_VERSION: Final = "1"
NATIVE_SOURCE: Final = "0"
"""Source tag of the requests topic itself; other sources have the CRC-32 of their name, in hex."""
CHECKPOINT_KEY: Final = b"@checkpoint"
NULL_VALUE: Final = "n"
PAUSED: Final = "p"
NEVER_MS: Final = 253_402_300_799_999
"""Due time of what is paused: the end of the year 9999, beyond every horizon."""
BARE: Final = "b"
"""Flags of a plan: the user's value is null; it is delivered without our trace headers."""
PLACED: Final = "h"
"""Flag of a plan: a partition key among its headers chooses the partition. A flag, and not another
field: dispatchers that do not know it read the plan all the same, and place by the record's key."""
ORDER_BYTES: Final = 8
"""Length of the due time in an order key; the action key follows."""


class Verb(StrEnum):
    """What an action asks for.

    All but ADD and REPLACE are about the pending schedule of their id and say nothing else: in
    their plans, due time is 0 and every other field but the id is empty.
    """

    ADD = "A", True
    REPLACE = "R", True
    CANCEL = "C", False
    PAUSE = "P", False
    """Nothing of it is delivered until RESUME; what falls due meanwhile waits."""
    RESUME = "U", False
    """It goes on; what fell due meanwhile follows its misfire rule."""

    delivers: bool
    """Whether it asks for a delivery; if not, the record is about that of another."""

    def __new__(cls, letter: str, delivers: bool) -> Self:
        """The letter is what stands in a plan."""
        verb = str.__new__(cls, letter)
        verb._value_ = letter
        verb.delivers = delivers
        return verb


VERBS: Final = {verb.value: verb for verb in Verb}
"""By what stands in a plan."""
_ENCODED_VERBS: Final = {verb.value.encode(): verb for verb in Verb}


class Plan(NamedTuple):
    """A request in normal form. Times are milliseconds since the epoch."""

    verb: Verb
    due_ms: int
    destination: str
    request_id: str = ""
    partition: int | None = None
    expires_ms: int | None = None
    flags: str = ""
    attempt: int = 0
    """How often delivery has failed so far; more than 0 only on re-armed work."""
    scheduled_for_ms: int | None = None
    """The time the user asked for, where re-arming has moved `due_ms` away from it."""
    source: str = ""
    """Topic of the request, where it is not the native requests topic."""
    misfire: str = ""
    cron: str = ""
    timezone: str = ""

    @property
    def null_value(self) -> bool:
        """Whether the user's value is null."""
        return NULL_VALUE in self.flags

    @property
    def bare(self) -> bool:
        """Whether it is delivered without our trace headers."""
        return BARE in self.flags

    @property
    def placed(self) -> bool:
        """Whether a partition key among its headers chooses the partition."""
        return PLACED in self.flags

    @property
    def paused(self) -> bool:
        """Whether it waits for RESUME."""
        return PAUSED in self.flags

    def pause(self) -> "Plan":
        """The same, waiting."""
        return self._replace(flags=self.flags + PAUSED)

    def resume(self) -> "Plan":
        """The same, going on."""
        return self._replace(flags=self.flags.replace(PAUSED, ""))

    @property
    def wanted_ms(self) -> int:
        """The time the user asked for."""
        return self.due_ms if self.scheduled_for_ms is None else self.scheduled_for_ms


class InvalidPlanError(ValueError):
    """The plan header of an action cannot be read: somebody else wrote to the actions topic."""


PLAN_FIELDS: Final = (
    "version",
    "verb",
    "due_ms",
    "destination",
    "partition",
    "expires_ms",
    "flags",
    "attempt",
    "scheduled_for_ms",
    "source",
    "misfire",
    "cron",
    "timezone",
    "request_id",
)
"""Order of the fields on the wire."""
_VERSION: Final = PLAN_VERSION.encode()
_FIELDS_BEFORE: Final = 4
_NOTHING_UNUSUAL: Final = b"|" * (len(PLAN_FIELDS) - _FIELDS_BEFORE)
"""Between destination and request id of nearly all plans: every field between them is empty."""
_UNUSUAL: Final = Plan(Verb.ADD, 0, "")[4:]
"""What these then are."""


def encode_plan(plan: Plan) -> bytes:
    """The plan header's value."""
    fields = (
        PLAN_VERSION,
        plan.verb,
        str(plan.due_ms),
        plan.destination,
        _optional(plan.partition),
        _optional(plan.expires_ms),
        plan.flags,
        str(plan.attempt) if plan.attempt else "",
        _optional(plan.scheduled_for_ms),
        plan.source,
        plan.misfire,
        plan.cron,
        plan.timezone,
        plan.request_id,
    )
    return "|".join(fields).encode()


def decode_plan(raw: bytes) -> Plan:
    """Read a plan header's value; `InvalidPlanError` if it is not one of ours."""
    try:
        head, nothing_unusual, request_id = raw.partition(_NOTHING_UNUSUAL)
        fields = head.split(b"|")
        if not nothing_unusual or len(fields) != _FIELDS_BEFORE or fields[0] != _VERSION:
            return _decode_any_plan(raw)
        _, verb, due, destination = fields
        due_ms = int(due or 0)
        if not FIRST_MS <= due_ms <= LAST_MS:
            raise ValueError(due)
        known = (_ENCODED_VERBS[verb], due_ms, destination.decode(), request_id.decode())
        return tuple.__new__(Plan, known + _UNUSUAL)  # half the time of Plan's own constructor
    except (ValueError, KeyError) as error:
        raise InvalidPlanError(f"not a plan: {raw[:200]!r}") from error


def _decode_any_plan(raw: bytes) -> Plan:
    (
        version,
        verb,
        due,
        destination,
        partition,
        expires,
        flags,
        attempt,
        scheduled_for,
        source,
        misfire,
        cron,
        timezone,
        request_id,
    ) = raw.decode().split("|", len(PLAN_FIELDS) - 1)
    if version != PLAN_VERSION:
        raise InvalidPlanError(f"plan version {version!r}, want {PLAN_VERSION!r}")
    return Plan(
        verb=VERBS[verb],
        due_ms=_moment(due) or 0,
        destination=destination,
        request_id=request_id,
        partition=int(partition) if partition else None,
        expires_ms=_moment(expires),
        flags=flags,
        attempt=int(attempt) if attempt else 0,
        scheduled_for_ms=_moment(scheduled_for),
        source=source,
        misfire=misfire,
        cron=cron,
        timezone=timezone,
    )


def _moment(text: str) -> int | None:
    moment = int(text) if text else None
    if moment is not None and not FIRST_MS <= moment <= LAST_MS:
        raise ValueError(text)
    return moment


class Coordinates(NamedTuple):
    """Where a request stands: the identity of the action made from it."""

    source_tag: str
    partition: int
    offset: int


def action_key(coordinates: Coordinates, attempt: int = 0) -> bytes:
    """The action's record key; `attempt` counts how often the dispatcher has re-armed it."""
    key = f"{coordinates.source_tag}/{coordinates.partition}/{coordinates.offset}"
    return (f"{key}#{attempt}" if attempt else key).encode()


def request_coordinates(key: bytes) -> Coordinates | None:
    """Coordinates in an action key that is not of re-armed work; None if the key is not one."""
    try:
        tag, partition, offset = key.split(b"/")
        return Coordinates(tag.decode("ascii"), int(partition), int(offset))
    except ValueError:
        return None


def parse_action_key(key: bytes) -> tuple[Coordinates, int] | None:
    """Coordinates and re-arm count of an action key; None if the key is not one."""
    try:
        base, _, attempt = key.decode("ascii").partition("#")
        source_tag, partition, offset = base.split("/")
        return Coordinates(source_tag, int(partition), int(offset)), int(attempt or 0)
    except ValueError:
        return None


def source_tag(topic: str, *, native_topic: str) -> str:
    """Short, stable name of a source topic for use in action keys."""
    return NATIVE_SOURCE if topic == native_topic else f"{zlib.crc32(topic.encode()):08x}"


def actions_partition(schedule_id: bytes, partitions: int) -> int:
    """Actions partition of a schedule id: the request id, or the action key where there is none."""
    return zlib.crc32(schedule_id) % partitions


def order_key(due_ms: int, key: bytes) -> bytes:
    """Sorts as entries fire: by due time, then by action key. Times before 1970 count as 1970."""
    return max(due_ms, 0).to_bytes(ORDER_BYTES, "big") + key


def order_due_ms(order: bytes) -> int:
    """The due time inside an order key."""
    return int.from_bytes(order[:ORDER_BYTES], "big")


def order_action_key(order: bytes) -> bytes:
    """The action key inside an order key."""
    return order[ORDER_BYTES:]


def action_headers(request_headers: Headers, user_key: bytes | None, plan: Plan) -> Headers:
    """Headers of an action record."""
    return [
        *request_headers,
        (names.ACTION_USER_KEY, user_key),
        (names.ACTION_PLAN, encode_plan(plan)),
    ]


def split_action_headers(
    headers: Sequence[tuple[str, bytes | None]],
) -> tuple[Headers, bytes | None, bytes]:
    """Undo `action_headers`: the request's own headers, the user's key, the raw plan."""
    if len(headers) < 2 or headers[-1][0] != names.ACTION_PLAN or headers[-1][1] is None:
        raise InvalidPlanError("an action ends with the user's key and the plan")
    return list(headers[:-2]), headers[-2][1], headers[-1][1]


def _optional(value: int | None) -> str:
    return "" if value is None else str(value)
