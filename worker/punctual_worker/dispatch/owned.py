"""A partition in service: what the loop keeps of it."""

from dataclasses import dataclass, field

from punctual_worker.dispatch.entries import LogRecord
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.store import Store


@dataclass
class Owned:
    """A partition that is served, from the end of its take-over until it is given up."""

    partition: Partition
    store: Store
    unswept: int
    """Rows that have fired and wait to be swept."""
    held: list[LogRecord] = field(default_factory=list)
    """Read, and not yet part of a committed turn."""
    waiting: bool = False
    """Whether this clock is behind the last owner's."""
    next_due_ms: int | None = None
    committed_ms: int = 0

    @property
    def wake_ms(self) -> int | None:
        """When there is something to do here, as far as the clock tells."""
        return self.partition.checkpoint.cursor_ms if self.waiting else self.next_due_ms
