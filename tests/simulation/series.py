"""Fires of a recurring schedule: which may, must and must not come, by arithmetic of its own.

The simulated users ask for «every N seconds» with N a divisor of the day, so that fires are the
multiples of N since the epoch. A fire may be left out only if the README says so: it was handled
more than ten seconds late and the misfire rule is not `all`; and with `once`, only if another fire
of the schedule came after it was due, to catch up.
"""

from dataclasses import dataclass
from typing import Final

_MISSED_AFTER_MS: Final = 10_000
_DAY_MS: Final = 24 * 60 * 60 * 1000


class ViolationError(Exception):
    """A promise is broken."""


@dataclass
class Series:
    """What has become of the fires of one recurring schedule."""

    every_ms: int
    misfire: str
    later_ms: int
    """By how much its spread moves each fire."""
    done_ms: int
    """All fires up to this one were delivered, given up or rightly left out."""
    due_ms: int
    """When the fire that is armed now is due."""
    last_ms: int = -1
    """The last fire that was delivered or given up."""
    last_handled_ms: int = -1
    left_out: int = 0

    def __post_init__(self) -> None:
        if _DAY_MS % self.every_ms:
            raise ValueError("want a divisor of the day: fires are counted from the epoch")

    def fired(self, fire_ms: int, now_ms: int) -> None:
        """A fire was delivered, or given up."""
        if fire_ms % self.every_ms:
            raise ViolationError(f"there is no fire at {fire_ms}")
        if fire_ms <= self.done_ms:
            raise ViolationError(f"the fire at {fire_ms} comes twice, or too late")
        if now_ms < fire_ms + self.later_ms:
            raise ViolationError(f"the fire at {fire_ms} is early")
        self.last_ms, self.last_handled_ms = fire_ms, now_ms
        self._leave_out(fire_ms, now_ms)
        self.done_ms = fire_ms

    def armed(self, fire_ms: int, now_ms: int) -> None:
        """The log says which fire comes next: those before it never will."""
        self._leave_out(fire_ms, now_ms)

    def _leave_out(self, before_ms: int, now_ms: int) -> None:
        """Every fire that is not done and before this one is left out."""
        first_ms = (self.done_ms // self.every_ms + 1) * self.every_ms
        last_ms = (before_ms - 1) // self.every_ms * self.every_ms
        if last_ms < first_ms:
            return
        left_out = f"the fires from {first_ms} to {last_ms} are left out"
        if self.misfire == "all":
            raise ViolationError(f"{left_out}, though none may be")
        if now_ms - last_ms - self.later_ms <= _MISSED_AFTER_MS:
            raise ViolationError(f"{left_out}, though not all of them were missed by {now_ms}")
        if self.misfire == "once" and self.last_handled_ms < first_ms + self.later_ms:
            raise ViolationError(f"{left_out}, and nothing came to catch up")
        self.done_ms = last_ms
        self.left_out += (last_ms - first_ms) // self.every_ms + 1
