"""The reading side of the view: lists, counts and histograms, each from the index that suits it.

Which index serves a question is decided here and not left to SQLite, which has no statistics: with
ten million rows a wrong guess is the difference between a millisecond and a minute. A question
that still takes too long is stopped, and the asker is told to narrow it.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from punctual_worker.console.filters import (
    MAX_MS,
    Filters,
    Order,
    Place,
    decode_cursor,
    encode_cursor,
    prefix_range,
)
from punctual_worker.console.reading import Reader
from punctual_worker.console.rows import PendingRow
from punctual_worker.console.schema import HOUR_MS

_COLUMNS: Final = (
    "due, action_key, id, name, partition, position, size, wanted, attempt, expires, cron, timezone"
)
_FROM: Final = "FROM pending JOIN destinations ON destinations.number = pending.destination"
_FEW: Final = 20_000
"""So many matches are sorted at once; more are looked for in the order that is wanted."""
_COUNT_LIMIT: Final = 10_000


class Page(NamedTuple):
    """Some rows, and where the next ones begin."""

    rows: list[PendingRow]
    next_cursor: str | None


class Count(NamedTuple):
    """How many; `exact` is false for "at least so many"."""

    number: int
    exact: bool


class _Question(NamedTuple):
    where: list[str]
    values: list[Any]


class Queries:
    """Answers from any thread."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def page(
        self,
        filters: Filters,
        order: Order = Order(),  # noqa: B008 a named tuple cannot change
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """A page of the list."""
        place = decode_cursor(cursor, order) if cursor else None
        rows = self.rows(filters, order, limit=limit + 1, after=place)
        more = len(rows) > limit
        rows = rows[:limit]
        return Page(rows, encode_cursor(order, _place(rows[-1], order)) if more else None)

    def rows(
        self, filters: Filters, order: Order, *, limit: int, after: Place | None = None
    ) -> list[PendingRow]:
        """Rows after a place, in order."""
        with self._reader.reading() as database:
            numbers = self._destination_numbers(database, filters)
            if numbers == []:
                return []
            index = self._index(database, filters, order, numbers)
            question = _conditions(filters, numbers, index)
            if order.field == "id":
                question.where.append("id IS NOT NULL")
            columns = "due, action_key" if order.field == "due" else "id, due, action_key"
            if after is not None:
                sign = "<" if order.descending else ">"
                marks = ", ".join("?" * len(after))
                question.where.append(f"({columns}) {sign} ({marks})")
                question.values.extend(after)
            direction = " DESC" if order.descending else ""
            ordered = ", ".join(column + direction for column in columns.split(", "))
            hint = f"INDEXED BY {index}" if index else ""
            found = database.execute(
                f"SELECT {_COLUMNS} FROM (SELECT * FROM pending {hint}"  # noqa: S608 our own words
                f" WHERE {' AND '.join(question.where) or '1'} ORDER BY {ordered} LIMIT ?) p"
                f" JOIN destinations ON destinations.number = p.destination ORDER BY {ordered}",
                (*question.values, limit),
            )
            return [PendingRow(*row) for row in found]

    def find(self, request_id: str) -> list[PendingRow]:
        """Everything that waits under an id: the standing one and what is to replace it."""
        return self._select("id = ? ORDER BY partition, position LIMIT 20", (request_id,))

    def get(self, due: int, action_key: str) -> PendingRow | None:
        """One schedule by its place in the timetable, if it still waits."""
        found = self._select("due = ? AND action_key = ?", (due, action_key))
        return found[0] if found else None

    def count(self, filters: Filters, *, exact: bool = False) -> Count:
        """How many match: from the tallies where they know, else counted up to a limit."""
        with self._reader.reading() as database:
            numbers = self._destination_numbers(database, filters)
            if numbers == []:
                return Count(0, exact=True)
            if filters.by_due_only:
                return Count(_count_by_due(database, filters, numbers), exact=True)
            if filters.recurring is False and not filters.id_prefix:
                every = _count_by_due(database, filters, numbers)
                question = _conditions(
                    replace(filters, recurring=True), numbers, "pending_recurring"
                )
                return Count(every - _counted(database, question, "pending_recurring", -1), True)
            index = "pending_id" if filters.id_prefix else "pending_recurring"
            question = _conditions(filters, numbers, index)
            cap = -1 if exact else _COUNT_LIMIT + 1
            number = _counted(database, question, index, cap)
            if not exact and number > _COUNT_LIMIT:
                return Count(_COUNT_LIMIT, exact=False)
            return Count(number, exact=True)

    def histogram(self, filters: Filters, *, start: int, step: int, buckets: int) -> list[int]:
        """How many are due in each of `buckets` stretches of `step` ms from `start` on."""
        end = start + step * buckets
        with self._reader.reading() as database:
            numbers = self._destination_numbers(database, filters)
            if numbers == []:
                return [0] * buckets
            whole_hours = start % HOUR_MS == 0 and step % HOUR_MS == 0
            if whole_hours and filters.by_due_only:
                where, values = _in_numbers(numbers)
                found = database.execute(
                    f"SELECT (hour * {HOUR_MS} - ?) / ?, SUM(n) FROM tally"  # noqa: S608
                    f" WHERE hour >= ? AND hour < ? {where} GROUP BY 1",
                    (start, step, start // HOUR_MS, end // HOUR_MS, *values),
                )
            else:
                window = replace(filters, due_from=start, due_to=end)
                question = _conditions(window, numbers, "")
                found = database.execute(
                    "SELECT (due - ?) / ?, COUNT(*) FROM pending"  # noqa: S608 our own words
                    f" WHERE {' AND '.join(question.where)} GROUP BY 1",
                    (start, step, *question.values),
                )
            heights = dict(found)
        return [heights.get(bucket, 0) for bucket in range(buckets)]

    def by_destination(self, limit: int = 20) -> list[tuple[str, int]]:
        """Destinations with most waiting."""
        with self._reader.reading() as database:
            return database.execute(
                "SELECT name, SUM(n) AS total FROM tally JOIN destinations"
                " ON destinations.number = tally.destination"
                " GROUP BY tally.destination HAVING total > 0 ORDER BY total DESC LIMIT ?",
                (limit,),
            ).fetchall()

    def next_due(self) -> int | None:
        """When the next one is due."""
        with self._reader.reading() as database:
            found = database.execute("SELECT MIN(due) FROM pending").fetchone()
            return None if found is None else found[0]

    def _select(self, condition: str, values: Sequence[object]) -> list[PendingRow]:
        with self._reader.reading() as database:
            found = database.execute(
                f"SELECT {_COLUMNS} {_FROM} WHERE {condition}",
                values,
            )
            return [PendingRow(*row) for row in found]

    def _destination_numbers(
        self, database: sqlite3.Connection, filters: Filters
    ) -> list[int] | None:
        """Numbers of the destinations that are asked for; None for all."""
        if not filters.destination:
            return None
        if filters.destination.endswith("*"):
            found = database.execute(
                "SELECT number FROM destinations WHERE name >= ? AND name < ? LIMIT 10000",
                prefix_range(filters.destination[:-1]),
            )
        else:
            found = database.execute(
                "SELECT number FROM destinations WHERE name = ?", (filters.destination,)
            )
        return [number for (number,) in found]

    def _index(
        self,
        database: sqlite3.Connection,
        filters: Filters,
        order: Order,
        numbers: list[int] | None,
    ) -> str:
        """The index to go by; none means the table itself, which is sorted by due time."""
        if filters.recurring and not filters.id_prefix:
            return "pending_recurring"
        if order.field == "id":
            return "pending_id"
        if filters.id_prefix:
            (found,) = database.execute(
                "SELECT COUNT(*) FROM (SELECT 1 FROM pending INDEXED BY pending_id"
                " WHERE id IS NOT NULL AND id >= ? AND id < ? LIMIT ?)",
                (*prefix_range(filters.id_prefix), _FEW + 1),
            ).fetchone()
            if found <= _FEW:
                return "pending_id"
        return "pending_destination" if numbers is not None and len(numbers) == 1 else ""


def _conditions(filters: Filters, numbers: list[int] | None, index: str) -> _Question:
    """The filters in SQL; a plus sign keeps SQLite from taking another index than ours."""
    where: list[str] = []
    values: list[Any] = []
    if index == "pending_id":
        where.append("id IS NOT NULL")
    if filters.id_prefix:
        plus = "" if index == "pending_id" else "+"
        where.append(f"{plus}id >= ? AND {plus}id < ?")
        values += prefix_range(filters.id_prefix)
    if numbers is not None:
        plus = "" if index == "pending_destination" else "+"
        where.append(f"{plus}destination IN ({', '.join('?' * len(numbers))})")
        values += numbers
    if filters.due_from is not None or filters.due_to is not None:
        plus = "+" if index == "pending_id" else ""
        where.append(f"{plus}due >= ? AND {plus}due < ?")
        values += [filters.due_from or 0, MAX_MS if filters.due_to is None else filters.due_to]
    if filters.recurring is not None:
        where.append("cron <> ''" if filters.recurring else "cron = ''")
    return _Question(where or ["1"], values)


def _counted(database: sqlite3.Connection, question: _Question, index: str, cap: int) -> int:
    (number,) = database.execute(
        f"SELECT COUNT(*) FROM (SELECT 1 FROM pending INDEXED BY {index}"  # noqa: S608 our words
        f" WHERE {' AND '.join(question.where)} LIMIT ?)",
        (*question.values, cap),
    ).fetchone()
    return int(number)


def _in_numbers(numbers: list[int] | None) -> tuple[str, list[int]]:
    if numbers is None:
        return "", []
    return f"AND destination IN ({', '.join('?' * len(numbers))})", numbers


def _count_by_due(database: sqlite3.Connection, filters: Filters, numbers: list[int] | None) -> int:
    """Whole hours from the tallies, the rest of the first and last hour from the index."""
    where, values = _in_numbers(numbers)
    start = filters.due_from or 0
    end = MAX_MS + 1 if filters.due_to is None else filters.due_to
    first, last = -(-start // HOUR_MS), end // HOUR_MS
    if first > last:
        return _count_between(database, start, end, where, values)
    (total,) = database.execute(
        f"SELECT COALESCE(SUM(n), 0) FROM tally WHERE hour >= ? AND hour < ? {where}",  # noqa: S608
        (first, last, *values),
    ).fetchone()
    edges = ((start, first * HOUR_MS), (last * HOUR_MS, end))
    return int(total) + sum(
        _count_between(database, one, other, where, values) for one, other in edges if one < other
    )


def _count_between(
    database: sqlite3.Connection, start: int, end: int, where: str, values: list[int]
) -> int:
    (number,) = database.execute(
        f"SELECT COUNT(*) FROM pending WHERE due >= ? AND due < ? {where}",  # noqa: S608
        (start, end, *values),
    ).fetchone()
    return int(number)


def _place(row: PendingRow, order: Order) -> Place:
    return (row.due, row.action_key) if order.field == "due" else (row.id or "", *row[:2])
