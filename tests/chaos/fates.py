"""What the topics say of each request, and what is wrong with it. Pure data."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Told(NamedTuple):
    """An event of history."""

    event: str
    at_ms: int
    wanted_ms: int
    """For a schedule, the time it is due; 0 for others."""


class Fire(NamedTuple):
    """A delivery: the time it was for, and when it was written."""

    wanted_ms: int
    at_ms: int


@dataclass
class Fate:
    """All that the topics say about one request."""

    delivered_ms: list[int] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)
    events: Counter[str] = field(default_factory=Counter)
    fires: list[Fire] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def of(self, event: str) -> list[Told]:
        """All events of a name."""
        return [told for told in self.told if told.event == event]


@dataclass
class Verdict:
    """Requests with which something is wrong, and why."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.twice or self.early or self.wrong)
