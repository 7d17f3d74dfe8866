"""What users asked for, and the oracle's book of what has become of it."""

import zlib
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from simulation.series import Series


class Request(NamedTuple):
    """What a user asked for."""

    key: bytes
    verb: str
    schedule_id: str
    """The request id, or the key where there is none."""
    due_ms: int
    """When it is due; of a recurring one, when it was asked for."""
    destination: str
    value: bytes | None
    expires_ms: int | None
    every_ms: int = 0
    """From fire to fire; 0 if it is not recurring."""
    misfire: str = ""
    spread_ms: int = 0

    @property
    def has_id(self) -> bool:
        return self.schedule_id.encode() != self.key

    @property
    def later_ms(self) -> int:
        """By how much its spread moves each fire."""
        return zlib.crc32(self.schedule_id.encode()) % self.spread_ms if self.spread_ms else 0

    def same_as(self, other: "Request") -> bool:
        if self.every_ms:  # it has no due time to differ in
            return (*self[4:-1], self.later_ms) == (*other[4:-1], other.later_ms)
        return self[3:] == other[3:]


class Status(Enum):
    UNSEEN = "not taken in"
    PENDING = "pending"
    DELIVERED = "delivered"
    REJECTED = "rejected"
    REPLACED = "replaced"
    CANCELLED = "cancelled"
    UNCHANGED = "a repetition that changes nothing"
    DONE = "carried out"
    """CANCEL, PAUSE and RESUME."""


@dataclass
class Fate:
    """What has become of a request."""

    request: Request
    status: Status = Status.UNSEEN
    action_key: bytes = b""
    """Key of the record that stands for it: its own, or that of its last re-arming."""
    tries: int = 0
    accounted: bool = False
    """Whether anything final was ever said about it; all that counts for the forgiven."""
    series: Series | None = None
    """The fires of a recurring one, once it is taken in."""
    paused: bool = False


@dataclass
class Ledger:
    """One actions partition."""

    arrivals: list[tuple[int, Fate]] = field(default_factory=list)
    """What intake wrote, repetitions too, before compaction took any of it."""
    repeated: dict[bytes, bool] = field(default_factory=dict)
    """Whether intake has written an action more than once."""
    taken: int = 0
    cursor: tuple[int, str] = (-1, "")
    fates: dict[bytes, Fate] = field(default_factory=dict)
    pending: dict[str, Fate] = field(default_factory=dict)
    forgiven: set[str] = field(default_factory=set)
