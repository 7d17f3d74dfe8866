"""The reading side of the view: lists, counts and histograms, each from the index that suits it.

A question that still takes too long is stopped, and the asker is told to narrow it.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from punctual_worker.console import searching
from punctual_worker.console.filters import (
    MAX_MS,
    Filters,
    Order,
    Place,
    decode_cursor,
    encode_cursor,
    prefix_range,
)
from punctual_worker.console.reading import Reader, TooSlowError
from punctual_worker.console.rows import PendingRow
from punctual_worker.console.schema import HOUR_MS

_COLUMNS: Final = (
    "p.due, p.action_key, id, name, partition, position, size, wanted, attempt, expires, cron,"
    " timezone"
)
_FROM: Final = "FROM pending p JOIN destinations ON destinations.number = p.destination"
_COUNT_LIMIT: Final = 10_000


class Page(NamedTuple):
    """Some rows, and where the next ones begin."""

    rows: list[PendingRow]
    next_cursor: str | None


class Count(NamedTuple):
    """How many; `exact` is false for "at least so many"."""

    number: int
    exact: bool


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
        next_place = place_of(rows[-1], filters, order) if more else None
        return Page(rows, None if next_place is None else encode_cursor(order, next_place))

    def rows(
        self, filters: Filters, order: Order, *, limit: int, after: Place | None = None
    ) -> list[PendingRow]:
        """Rows after a place, in order."""
        with self._reader.reading() as database:
            numbers = _destination_numbers(database, filters)
            if numbers == []:
                return []
            *first, last = searching.ways(database, filters, order, numbers)
        for way in first:
            try:
                return self._rows_by(way, filters, order, numbers, after, limit)
            except TooSlowError:
                continue
        return self._rows_by(last, filters, order, numbers, after, limit)

    def _rows_by(
        self,
        way: searching.Way,
        filters: Filters,
        order: Order,
        numbers: list[int] | None,
        after: Place | None,
        limit: int,
    ) -> list[PendingRow]:
        places, values = searching.places(filters, order, numbers, way.index, after)
        columns = searching.sorted_columns(filters, order)
        with self._reader.reading(limit_seconds=way.seconds) as database:
            found = database.execute(
                f"SELECT {_COLUMNS} FROM ({places}) AS place CROSS JOIN pending AS p"  # noqa: S608
                " ON p.due = place.due AND p.action_key = place.action_key"
                " CROSS JOIN destinations ON destinations.number = p.destination"
                f" ORDER BY {searching.in_direction(columns, order, 'p.')}",
                (*values, limit),
            )
            return [PendingRow(*row) for row in found]

    def find(self, request_id: str) -> list[PendingRow]:
        """Everything that waits under an id: the standing one and what is to replace it."""
        return self._select("id = ? ORDER BY partition, position LIMIT 20", (request_id,))

    def get(self, due: int, action_key: str) -> PendingRow | None:
        """One schedule by its place in the timetable, if it still waits."""
        found = self._select("p.due = ? AND p.action_key = ?", (due, action_key))
        return found[0] if found else None

    def count(self, filters: Filters, *, exact: bool = False) -> Count:
        """How many match: from the tallies where they know, else counted up to a limit."""
        with self._reader.reading() as database:
            numbers = _destination_numbers(database, filters)
            if numbers == []:
                return Count(0, exact=True)
            if filters.by_due_only:
                return Count(_count_by_due(database, filters, numbers), exact=True)
            if replace(filters, recurring=None).by_due_only and filters.recurring is False:
                index, others = searching.BY_RECURRING, replace(filters, recurring=True)
                recurring = searching.counted(
                    database, index, searching.conditions(others, numbers, index)
                )
                return Count(_count_by_due(database, filters, numbers) - recurring, exact=True)
            if filters.id_prefix:
                index = searching.BY_ID
            else:
                index = searching.BY_RECURRING if filters.recurring else searching.BY_PAUSED
            question = searching.conditions(filters, numbers, index)
            cap = -1 if exact else _COUNT_LIMIT + 1
            number = searching.counted(database, index, question, cap)
            if not exact and number > _COUNT_LIMIT:
                return Count(_COUNT_LIMIT, exact=False)
            return Count(number, exact=True)

    def histogram(self, filters: Filters, *, start: int, step: int, buckets: int) -> list[int]:
        """How many are due in each of `buckets` stretches of `step` ms from `start` on.

        What is paused is due at no time; asked for alone, it is shown where it was to be due.
        """
        end = min(start + step * buckets, MAX_MS)
        window = replace(filters, due_from=start, due_to=end)
        with self._reader.reading() as database:
            numbers = _destination_numbers(database, filters)
            if numbers == []:
                return [0] * buckets
            whole_hours = start % HOUR_MS == 0 and step % HOUR_MS == 0
            if whole_hours and window.by_due_only:
                where, values = searching.in_numbers(numbers)
                found = database.execute(
                    f"SELECT (hour * {HOUR_MS} - ?) / ?, SUM(n) FROM tally"  # noqa: S608
                    f" WHERE hour >= ? AND hour < ? {where} GROUP BY 1",
                    (start, step, start // HOUR_MS, end // HOUR_MS, *values),
                )
            else:
                index, moment = searching.BY_DUE, "due"
                if window.by_wanted:
                    index, moment = searching.BY_PAUSED, "wanted"
                question = searching.conditions(window, numbers, index)
                found = database.execute(
                    f"SELECT ({moment} - ?) / ?, COUNT(*) FROM pending"  # noqa: S608 our own words
                    f" {searching.hint(index)} WHERE {question} GROUP BY 1",
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
            found = database.execute(
                "SELECT due FROM pending WHERE due < ? ORDER BY due LIMIT 1", (MAX_MS,)
            ).fetchone()
            return None if found is None else int(found[0])

    def _select(self, condition: str, values: Sequence[object]) -> list[PendingRow]:
        with self._reader.reading() as database:
            found = database.execute(
                f"SELECT {_COLUMNS} {_FROM} WHERE {condition}",
                values,
            )
            return [PendingRow(*row) for row in found]


def _destination_numbers(database: sqlite3.Connection, filters: Filters) -> list[int] | None:
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


def _count_by_due(database: sqlite3.Connection, filters: Filters, numbers: list[int] | None) -> int:
    """Whole hours from the tallies, the rest of the first and last hour from the index."""
    if filters.paused:
        return searching.tallied(
            database, searching.PAUSED_HOUR, searching.PAUSED_HOUR + 1, numbers
        )
    if not filters.timed and filters.paused is None:
        return searching.tallied(database, 0, searching.PAUSED_HOUR + 1, numbers)
    start, end = filters.between
    first, last = -(-start // HOUR_MS), end // HOUR_MS
    if first > last:
        return _count_between(database, start, end, numbers)
    edges = ((start, first * HOUR_MS), (last * HOUR_MS, end))
    return searching.tallied(database, first, last, numbers) + sum(
        _count_between(database, one, other, numbers) for one, other in edges if one < other
    )


def _count_between(
    database: sqlite3.Connection, start: int, end: int, numbers: list[int] | None
) -> int:
    where, values = searching.in_numbers(numbers)
    index = searching.BY_DUE if numbers is None else searching.BY_DESTINATION
    hint = searching.hint(index)
    (number,) = database.execute(
        f"SELECT COUNT(*) FROM pending {hint} WHERE due >= ? AND due < ? {where}",  # noqa: S608
        (start, end, *values),
    ).fetchone()
    return int(number)


def place_of(row: PendingRow, filters: Filters, order: Order) -> Place:
    """Where a row stands in a list."""
    if order.field == "id":
        return (row.id or "", row.due, row.action_key)
    return (row.wanted if filters.paused else row.due, row.action_key)
