"""What can be asked of the view: filters, order, and cursors that name a place in it. Pure."""

import base64
import json
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from punctual_worker.contract.actions import NEVER_MS

SortField = Literal["due", "id"]
MAX_MS: Final = NEVER_MS
"""The end of the year 9999, where only what is paused stands."""


class CursorError(ValueError):
    """The cursor is not one that a page of this list has given."""


@dataclass(frozen=True)
class Filters:
    """Which schedules; every filter that is given must match."""

    id_prefix: str = ""
    destination: str = ""
    """A topic, or the beginning of topic names followed by `*`."""
    due_from: int | None = None
    due_to: int | None = None
    """Exclusive."""
    recurring: bool | None = None
    paused: bool | None = None
    """What is paused is never due: times leave it out, unless it alone is asked for. Then they are
    about when it was to be due."""

    @property
    def timed(self) -> bool:
        """Whether times are given."""
        return self.due_from is not None or self.due_to is not None

    @property
    def by_wanted(self) -> bool:
        """Whether times are about what the user asked for, and not about what is due."""
        return bool(self.paused) and self.timed

    @property
    def between(self) -> tuple[int, int]:
        """The times, the second one exclusive."""
        return self.due_from or 0, MAX_MS if self.due_to is None else min(self.due_to, MAX_MS)

    @property
    def by_due_only(self) -> bool:
        """Whether the tallies alone can answer."""
        return not self.id_prefix and self.recurring is None and not self.by_wanted

    def as_dict(self) -> dict[str, object]:
        """What was given, for logs and people."""
        return {name: value for name, value in vars(self).items() if value not in (None, "")}


class Order(NamedTuple):
    """How a list is sorted."""

    field: SortField = "due"
    descending: bool = False

    def __str__(self) -> str:
        """As in the API: `due`, `-due`, `id`, `-id`."""
        return f"-{self.field}" if self.descending else self.field


Place = tuple[str | int, ...]
"""Values of the sorted columns at the last row of a page."""


def encode_cursor(order: Order, place: Place) -> str:
    """Opaque text for the next page."""
    return base64.urlsafe_b64encode(json.dumps([str(order), *place]).encode()).decode().rstrip("=")


def decode_cursor(text: str, order: Order) -> Place:
    """Undo `encode_cursor`; `CursorError` if it is none, or one of another order."""
    try:
        padded = text + "=" * (-len(text) % 4)
        said, *place = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError) as error:
        raise CursorError("cursor: take it from the previous page, as it is") from error
    wanted = (int, str) if order.field == "due" else (str, int, str)
    fits = len(place) == len(wanted) and all(
        type(value) is kind for value, kind in zip(place, wanted, strict=True)
    )
    if said != str(order) or not fits or any(_unusable(value) for value in place):
        raise CursorError(f"cursor: it does not belong to a list sorted by {order}")
    return tuple(place)


def _unusable(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) > MAX_MS
    return any("\ud800" <= char <= "\udfff" for char in str(value))


def prefix_range(prefix: str) -> tuple[str, str]:
    """Bounds between which all texts with this prefix stand: at or above, and below."""
    return prefix, prefix + "\U0010ffff"
