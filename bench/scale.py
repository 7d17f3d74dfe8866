"""How much is measured: counts and windows of a run. The figures' names say which were used."""

from dataclasses import dataclass
from typing import Final

MILLION: Final = 1_000_000


@dataclass(frozen=True)
class Scale:
    """One size of a run."""

    name: str
    intake_warm_up: int
    """Requests before anything is timed: the JVM compiles what it runs often."""
    intake_requests: int
    intake_rounds: int
    latency_seconds: int
    bursts: tuple[int, ...]
    burst_rounds: int
    """Of those below a million."""
    broker_warm_up_seconds: float
    lateness_seconds: int
    pending: tuple[int, ...]
    """Levels, one after the other in the same dispatcher."""
    main_level: int
    """The level at which taking in and idling are measured."""
    growth_burst: int
    growth_rounds: int
    idle_seconds: int
    takeover_seconds: int
    restart_margin_seconds: int
    """How long a dispatcher may take to end before something falls due; more than a session, so
    that the group has forgotten one that was killed."""
    restart_after_kill: bool
    lead_base_seconds: int
    lead_rate: int
    """Actions per second that writer and dispatcher surely manage: what is due at one instant is
    written so much earlier."""

    def lead_seconds(self, count: int) -> float:
        """How long before its due time writing `count` actions has to begin."""
        return self.lead_base_seconds + count / self.lead_rate


FULL: Final = Scale(
    name="full",
    intake_warm_up=500_000,
    intake_requests=MILLION,
    intake_rounds=3,
    latency_seconds=30,
    bursts=(100_000, MILLION),
    burst_rounds=5,
    broker_warm_up_seconds=8,
    lateness_seconds=20,
    pending=(10_000, 100_000, MILLION, 10 * MILLION),
    main_level=MILLION,
    growth_burst=50_000,
    growth_rounds=3,
    idle_seconds=30,
    takeover_seconds=16,
    restart_margin_seconds=10,
    restart_after_kill=True,
    lead_base_seconds=7,
    lead_rate=20_000,
)
QUICK: Final = Scale(
    name="quick",
    intake_warm_up=200_000,
    intake_requests=300_000,
    intake_rounds=3,
    latency_seconds=8,
    bursts=(100_000,),
    burst_rounds=3,
    broker_warm_up_seconds=6,
    lateness_seconds=6,
    pending=(10_000, 100_000, MILLION),
    main_level=MILLION,
    growth_burst=20_000,
    growth_rounds=1,
    idle_seconds=10,
    takeover_seconds=10,
    restart_margin_seconds=4,
    restart_after_kill=False,
    lead_base_seconds=4,
    lead_rate=20_000,
)
TINY: Final = Scale(
    name="tiny",
    intake_warm_up=2_000,
    intake_requests=5_000,
    intake_rounds=1,
    latency_seconds=3,
    bursts=(2_000,),
    burst_rounds=1,
    broker_warm_up_seconds=1,
    lateness_seconds=2,
    pending=(500, 1_000, 5_000),
    main_level=5_000,
    growth_burst=500,
    growth_rounds=1,
    idle_seconds=3,
    takeover_seconds=14,
    restart_margin_seconds=10,
    restart_after_kill=True,
    lead_base_seconds=7,
    lead_rate=1_000,
)
"""For trying the bench itself, on a busy machine too: its figures say nothing."""


def in_words(count: int) -> str:
    """`100 k`, `1 M`."""
    if count >= MILLION and count % MILLION == 0:
        return f"{count // MILLION} M"
    return f"{count // 1000} k" if count >= 1000 and count % 1000 == 0 else str(count)
