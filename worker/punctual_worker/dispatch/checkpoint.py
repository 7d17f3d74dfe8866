"""The checkpoint of an actions partition: all that a new owner has to know. Pure.

It travels as the metadata string of the consumer group's committed offset, which brokers limit to
4,096 bytes, and as a record under a reserved key in the partition's log, which has the last word.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from punctual_worker.contract import actions

METADATA_LIMIT: Final = 4096
"""A broker's default `offset.metadata.max.bytes`."""
BEFORE_EVERYTHING: Final = b""
"""Cursor of a partition that has never fired: sorts before every order key."""
_VERSION: Final = "1"

Watermarks = Mapping[str, Mapping[int, int]]
"""Source tag -> request partition -> highest request offset seen."""


class InvalidCheckpointError(ValueError):
    """Neither version nor layout is ours: guessing would lose or repeat messages."""


class CheckpointTooLargeError(ValueError):
    """More request partitions than fit into an offset's metadata."""


@dataclass(frozen=True)
class Checkpoint:
    """`(L, X, W)` of the design, and who wrote it."""

    position: int = 0
    """L: next log offset to take in."""
    cursor: bytes = BEFORE_EVERYTHING
    """X: order key of the last fired entry; everything up to it has fired."""
    watermarks: Watermarks = field(default_factory=dict)
    """W: what intake sends again at or below this was taken in before."""
    writer: str = ""
    """Transactional id of the dispatcher that wrote it; its successor fences it by this."""

    @property
    def cursor_ms(self) -> int:
        """Due time of the cursor; 0 before anything fired."""
        return actions.order_due_ms(self.cursor)

    def seen(self, coordinates: actions.Coordinates) -> bool:
        """Whether a request was taken in before, so that this one is intake's repetition."""
        known = self.watermarks.get(coordinates.source_tag, {})
        return coordinates.offset <= known.get(coordinates.partition, -1)

    def is_behind(self, other: "Checkpoint") -> bool:
        """Whether the other one is further on; neither part of a checkpoint ever goes back."""
        return (
            self.position <= other.position
            and self.cursor <= other.cursor
            and (self.position, self.cursor) != (other.position, other.cursor)
        )

    def moved(
        self, *, position: int, cursor: bytes, watermarks: Watermarks, writer: str
    ) -> "Checkpoint":
        """The checkpoint after a turn; neither position nor cursor ever goes back."""
        return replace(
            self,
            position=max(position, self.position),
            cursor=max(cursor, self.cursor),
            watermarks=watermarks,
            writer=writer,
        )


def encode(checkpoint: Checkpoint) -> str:
    """Text for the offset's metadata."""
    marks = ";".join(
        f"{tag}={','.join(_offsets(by_partition))}"
        for tag, by_partition in sorted(checkpoint.watermarks.items())
    )
    cursor = ""
    if checkpoint.cursor:
        key = actions.order_action_key(checkpoint.cursor).decode()
        cursor = f"{checkpoint.cursor_ms}:{key}"
    text = " ".join((_VERSION, str(checkpoint.position), cursor, marks, checkpoint.writer))
    if len(text) > METADATA_LIMIT:
        raise CheckpointTooLargeError(
            f"the checkpoint needs {len(text)} bytes and only {METADATA_LIMIT} can be kept:"
            " too many request partitions"
        )
    return text


def decode(text: str) -> Checkpoint:
    """Read what `encode` wrote."""
    try:
        version, position, cursor, marks, writer = text.split(" ", 4)
        if version != _VERSION:
            raise InvalidCheckpointError(f"checkpoint version {version!r}, want {_VERSION!r}")
        order = BEFORE_EVERYTHING
        if cursor:
            due, _, key = cursor.partition(":")
            order = actions.order_key(int(due), key.encode())
        watermarks = {
            tag: {
                partition: int(offset, 16)
                for partition, offset in enumerate(offsets.split(","))
                if offset
            }
            for tag, _, offsets in (mark.partition("=") for mark in marks.split(";") if mark)
        }
        return Checkpoint(int(position), order, watermarks, writer)
    except ValueError as error:
        raise InvalidCheckpointError(f"not a checkpoint: {text[:200]!r}") from error


def _offsets(by_partition: Mapping[int, int]) -> list[str]:
    """Offsets in hexadecimal, by partition number, empty where none was seen."""
    last = max(by_partition, default=-1)
    return [
        format(by_partition[partition], "x") if partition in by_partition else ""
        for partition in range(last + 1)
    ]
