"""What a turn of one partition comes to. Pure data, between deciding and writing."""

from collections import Counter
from dataclasses import dataclass, field

from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.deliveries import Delivery
from punctual_worker.dispatch.entries import Entry, Event, Rejection
from punctual_worker.dispatch.table import Changes


@dataclass
class Outcome:
    """What a turn of one partition writes, and what it changes afterwards."""

    checkpoint: Checkpoint
    deliveries: list[Delivery] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    rearmed: list[Entry] = field(default_factory=list)
    tombstones: list[Entry] = field(default_factory=list)
    """Entries decided for good: their keys get a tombstone in the same transaction."""
    events: list[Event] = field(default_factory=list)
    changes: Changes = field(default_factory=lambda: Changes(perhaps_there=False))
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    replays: int = 0
    """Requests that intake has sent again. The position must pass them for good: compaction keeps
    the last copy of a pending request, and one beyond the position is not taken for pending."""
    fired: int = 0
    """Rows that the cursor has passed."""
    more: bool = False
    """Whether something due was left for the next turn."""

    def writes(self, before: Checkpoint) -> bool:
        """Whether a transaction is needed; a position alone can wait for the next one."""
        return bool(
            self.deliveries
            or self.rejections
            or self.rearmed
            or self.tombstones
            or self.replays
            or self.changes.puts
            or self.changes.removes
            or self.checkpoint.cursor != before.cursor
            or self.checkpoint.watermarks != before.watermarks
        )
