"""What is fixed for a dispatcher's life. Pure."""

from dataclasses import dataclass

from punctual_worker.dispatch import deliveries
from punctual_worker.dispatch.deliveries import Delivery
from punctual_worker.dispatch.entries import Entry


@dataclass(frozen=True)
class Policy:
    """How a dispatcher decides and delivers."""

    requests_topic: str
    writer: str = ""
    trace: bool = True
    history: bool = False
    attempts: int = 6
    backoff_ms: int = 1_000
    compaction_lag_ms: int = 24 * 60 * 60 * 1000
    """`min.compaction.lag.ms` of the actions topic: how long the log keeps both copies of a
    replayed action."""

    def render(self, entry: Entry) -> Delivery:
        """The entry as it is delivered."""
        return deliveries.deliver(entry, requests_topic=self.requests_topic, trace=self.trace)
