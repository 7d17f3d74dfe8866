"""Whether a delivery can be tried, and how many fit into one transaction. Pure."""

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from punctual_worker.contract.codes import Code
from punctual_worker.dispatch.entries import Entry


class Judgement(Enum):
    """Whether a destination can be delivered to."""

    READY = "ready"
    PROBE = "probe"
    """It failed before: try it with one message, in a transaction without any other."""
    DEFER = "defer"


class Verdict(NamedTuple):
    """Judgement of one delivery, with the code and the reason where it is deferred."""

    judgement: Judgement
    code: Code = Code.DELIVERY_FAILED
    reason: str = ""


class Judge(Protocol):
    """Knows the destinations."""

    def judge(self, entry: Entry) -> Verdict:
        """Whether this message can be tried now."""

    def all_ready(self, destinations: Set[str]) -> bool:
        """Whether every message to these is `READY` that does not ask for a partition."""


@dataclass
class Budget:
    """How many deliveries fit into one transaction, over all its partitions."""

    remaining: int
    remaining_bytes: int = 1 << 62
    closed: bool = False
    delivered: int = 0

    @property
    def spent(self) -> bool:
        """Whether nothing more may be added."""
        return self.closed or self.remaining <= 0 or self.remaining_bytes <= 0

    def spend(self, deliveries: int, their_bytes: int) -> None:
        """Make room for deliveries."""
        self.remaining -= deliveries
        self.remaining_bytes -= their_bytes
        self.delivered += deliveries
