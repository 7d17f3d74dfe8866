"""The writing side of the view: batches of the logs in, in one transaction with their positions.

One thread writes. Readers (`queries`) have connections of their own and see whole batches only.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from punctual_worker.console.rows import EventRow, PendingRow, RejectionRow, Removal
from punctual_worker.console.schema import OFFSET_BITS, arrange, connect, is_arriving, make_indexes

TopicPartition = tuple[str, int]
_PUT: Final = """
INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET position = excluded.position
"""  # a repetition has the same content, but compaction will keep the later record only
_APPEND: Final = "INSERT INTO arriving VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_APPEND_REMOVAL: Final = "INSERT INTO arriving (due, action_key) VALUES (?, ?)"
_REMOVE: Final = "DELETE FROM pending WHERE due = ? AND action_key = ?"
_HIDE: Final = """
DELETE FROM pending
WHERE (due, action_key) <= (?, ?) AND partition = ? AND (position < ? OR instr(action_key, '#'))
"""


@dataclass
class Batch:
    """What a stretch of the logs changes; for each schedule the last word counts."""

    pending: dict[tuple[int, str], PendingRow | None] = field(default_factory=dict)
    rejections: list[RejectionRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    def put(self, row: PendingRow) -> None:
        """This one waits."""
        self.pending[row.due, row.action_key] = row

    def remove(self, removal: Removal) -> None:
        """This one is gone."""
        self.pending[removal] = None


class View:
    """The database, written by one thread."""

    def __init__(self, path: Path) -> None:
        """The file must be there (`schema.open_writer`)."""
        self._database = connect(path)
        self._arriving = is_arriving(self._database)
        self._destinations: dict[str, int] = {
            name: number
            for number, name in self._database.execute("SELECT number, name FROM destinations")
        }

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def interrupt(self) -> None:
        """From another thread: end what is being done, as if it had not been begun."""
        with contextlib.suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self._database.interrupt()

    def positions(self) -> dict[TopicPartition, int]:
        """Where to read on."""
        found = self._database.execute("SELECT topic, partition, position FROM positions")
        return {(topic, partition): position for topic, partition, position in found}

    def apply(self, batch: Batch, *, now_ms: int) -> None:
        """Write a batch and its positions, all or nothing."""
        with self._transaction():
            puts = [row for row in batch.pending.values() if row is not None]
            gone = [key for key, row in batch.pending.items() if row is None]
            puts.sort()
            remove, put = (_APPEND_REMOVAL, _APPEND) if self._arriving else (_REMOVE, _PUT)
            self._database.executemany(remove, gone)
            self._database.executemany(put, [self._values(row) for row in puts])
            self._database.executemany(
                "INSERT OR REPLACE INTO rejections VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(_number(row.partition, row.offset), *row[2:]) for row in batch.rejections],
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?)",
                [(_number(row.partition, row.offset), *row[2:]) for row in batch.events],
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)",
                [(*where, position) for where, position in batch.positions.items()],
            )
            self._database.execute(
                "UPDATE meta SET value = ? WHERE name = 'saved_at'", (str(now_ms),)
            )

    def make_searchable(self) -> None:
        """The log's end was reached: arrange what has arrived, unless that was done before."""
        if self._arriving:
            with self._transaction():
                arrange(self._database)
            self._arriving = False
        make_indexes(self._database)

    def hide_fired(self, partition: int, *, position: int, cursor: tuple[int, str]) -> int:
        """Remove what the dispatcher's checkpoint says has fired; how many that were."""
        with self._transaction():
            return self._database.execute(_HIDE, (*cursor, partition, position)).rowcount

    def trim(self, table: str, kept_from: Mapping[int, int]) -> None:
        """Forget rejections or events below an offset per partition, and empty tallies."""
        if table not in {"rejections", "events"}:
            raise ValueError(table)
        with self._transaction():
            for partition, offset in kept_from.items():
                self._database.execute(
                    f"DELETE FROM {table} WHERE number >= ? AND number < ?",  # noqa: S608 a name of ours
                    (_number(partition, 0), _number(partition, offset)),
                )
            self._database.execute("DELETE FROM tally WHERE n <= 0")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            self._destinations = {}
            raise
        self._database.execute("COMMIT")

    def _values(self, row: PendingRow) -> tuple[object, ...]:
        destination = self._destinations.get(row.destination)
        if destination is None:
            destination = self._number_of(row.destination)
        return (*row[:3], destination, *row[4:])

    def _number_of(self, destination: str) -> int:
        self._database.execute(
            "INSERT OR IGNORE INTO destinations (name) VALUES (?)", (destination,)
        )
        (number,) = self._database.execute(
            "SELECT number FROM destinations WHERE name = ?", (destination,)
        ).fetchone()
        self._destinations[destination] = int(number)
        return int(number)


def _number(partition: int, offset: int) -> int:
    return partition << OFFSET_BITS | offset
