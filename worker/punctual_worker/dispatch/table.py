"""What the pure code asks of a local store. Pure.

A table holds the entries of one actions partition by order key, and finds them by request id. It
is a cache of a prefix of the log: `position` says of which. Rows up to the cursor have fired and
wait to be swept; only rows after it are pending.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from punctual_worker.dispatch.entries import Entry


@dataclass
class Changes:
    """Rows to write at once; together with the position, all or nothing."""

    puts: dict[bytes, Entry | None] = field(default_factory=dict)
    """By order key. None is a mark without content: fired as it came, to be swept."""
    removes: dict[bytes, str] = field(default_factory=dict)
    """Order key to request id (empty where it has none)."""

    perhaps_there: bool = True
    """Whether the table may have any of the `puts` already; if not, it need not look."""
    again: set[bytes] = field(default_factory=set)
    """Those it may have in any case."""

    def put(self, order: bytes, entry: Entry) -> None:
        """Stage an entry under its order key."""
        if self.removes:
            self.removes.pop(order, None)
        self.puts[order] = entry

    def remove(self, order: bytes, request_id: str) -> None:
        """Stage a removal."""
        self.puts.pop(order, None)
        self.removes[order] = request_id


class Stretch(NamedTuple):
    """Some rows that follow each other, without marks."""

    orders: list[bytes]
    rows: list[bytes]
    """As `deliveries.pack` makes them."""
    end: bytes
    """Nothing else has an order key between the beginning and this one."""


class Table(Protocol):
    """The local store of one partition."""

    @property
    def position(self) -> int:
        """Next log offset that the rows do not reflect yet; 0 for an empty table."""

    def find(self, request_id: str) -> Sequence[bytes]:
        """Order keys of the rows with this request id, fired ones among them."""

    def get(self, order: bytes) -> Entry | None:
        """One entry; None if there is none, or only a mark."""

    def read(self, *, start: bytes, until: bytes, most: int, most_bytes: int) -> Stretch:
        """Rows with `start` <= order key < `until`, in order: up to about so many."""

    def first_after(self, order: bytes) -> bytes | None:
        """The smallest order key beyond this one."""

    def fired(self, *, until: bytes, limit: int) -> list[tuple[bytes, str]]:
        """Order key and request id of the first rows up to and including `until`."""

    def write(self, changes: Changes, *, position: int) -> None:
        """Apply the changes and move to the position."""

    def clear(self) -> None:
        """Forget everything: position 0, no rows."""
