"""Whether a delivery can be tried, and how many fit into one transaction. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

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


Judge = Callable[[Entry], Verdict]


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

    def spend(self, entry: Entry) -> None:
        """Make room for one delivery."""
        self.remaining -= 1
        self.remaining_bytes -= len(entry.value) if entry.value else 0
        self.delivered += 1
