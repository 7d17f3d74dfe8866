"""How a question to the view is put: by which index, under which conditions.

SQLite has no statistics here, and with ten million rows a wrong guess is the difference between a
millisecond and a minute. So the tallies say how many rows a filter leaves at most, and the index
that leaves few is taken.
"""

import sqlite3
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from punctual_worker.console.filters import MAX_MS, Filters, Order, Place, prefix_range
from punctual_worker.console.schema import HOUR_MS

BY_DUE: Final = ""
"""The table itself, which is sorted by due time."""
BY_ID: Final = "pending_id"
BY_DESTINATION: Final = "pending_destination"
BY_RECURRING: Final = "pending_recurring"
BY_PAUSED: Final = "pending_paused"
PAUSED_HOUR: Final = MAX_MS // HOUR_MS
_FEW: Final = 20_000
"""So many rows are looked at and sorted in no time."""
_MANY: Final = 200_000
"""So many, where the index alone knows all that is asked."""
_QUICK_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Way:
    """An index to go by; with a time limit where another way is left."""

    index: str
    seconds: float | None = None


class Question(NamedTuple):
    """Conditions in SQL and their values."""

    where: list[str]
    values: list[Any]

    def __str__(self) -> str:
        """The conditions together."""
        return " AND ".join(self.where)


def ways(
    database: sqlite3.Connection, filters: Filters, order: Order, numbers: list[int] | None
) -> list[Way]:
    """What to try, one after the other. `numbers` are the destinations asked for, None for all."""
    in_order = _in_order_of_due(filters, numbers)
    if filters.id_prefix:
        by_wanted = filters.paused and (order.field == "due" or filters.timed)
        covered = not by_wanted and filters.recurring is None
        most = _MANY if covered else _FEW
        if counted(database, BY_ID, conditions_of_prefix(filters), most + 1) <= most:
            return [Way(BY_ID)]
    if _at_most(database, filters, numbers) <= _FEW:
        several = in_order == BY_DUE and numbers is not None
        return [Way(BY_DESTINATION if several else in_order)]
    if order.field == "id":
        return [Way(BY_ID)]
    if filters.id_prefix:
        # Ids often go with time: then there is nothing of this prefix for a long stretch.
        return [Way(in_order, _QUICK_SECONDS), Way(BY_ID)]
    return [Way(in_order)]


def _in_order_of_due(filters: Filters, numbers: list[int] | None) -> str:
    if filters.paused:
        return BY_PAUSED
    if filters.recurring:
        return BY_RECURRING
    return BY_DESTINATION if numbers is not None and len(numbers) == 1 else BY_DUE


def _at_most(database: sqlite3.Connection, filters: Filters, numbers: list[int] | None) -> int:
    """How many rows are left by all filters but that of the id, or more."""
    if filters.recurring:
        return counted(database, BY_RECURRING, Question(["cron <> ''"], []), _FEW + 1)
    if filters.paused:
        start, end = PAUSED_HOUR, PAUSED_HOUR
    else:
        start, end = (moment // HOUR_MS for moment in filters.between)
    return tallied(database, start, end + 1, numbers)


def tallied(
    database: sqlite3.Connection, first_hour: int, end_hour: int, numbers: list[int] | None
) -> int:
    """How many are due in whole hours, the last one exclusive."""
    where, values = in_numbers(numbers)
    (total,) = database.execute(
        f"SELECT COALESCE(SUM(n), 0) FROM tally WHERE hour >= ? AND hour < ? {where}",  # noqa: S608
        (first_hour, end_hour, *values),
    ).fetchone()
    return int(total)


def in_numbers(numbers: list[int] | None) -> tuple[str, list[int]]:
    """A further condition on the destination."""
    if numbers is None:
        return "", []
    return f"AND destination IN ({', '.join('?' * len(numbers))})", numbers


def conditions_of_prefix(filters: Filters) -> Question:
    """Only how the id begins."""
    return Question(["id IS NOT NULL", "id >= ? AND id < ?"], list(prefix_range(filters.id_prefix)))


def conditions(filters: Filters, numbers: list[int] | None, index: str) -> Question:
    """The filters in SQL; a plus sign keeps SQLite from taking another index than ours."""
    where: list[str] = []
    values: list[Any] = []
    if index == BY_ID:
        where.append("id IS NOT NULL")
    if filters.id_prefix:
        plus = "" if index == BY_ID else "+"
        where.append(f"{plus}id >= ? AND {plus}id < ?")
        values += prefix_range(filters.id_prefix)
    if numbers is not None:
        plus = "" if index == BY_DESTINATION else "+"
        where.append(f"{plus}destination IN ({', '.join('?' * len(numbers))})")
        values += numbers
    plus = "+" if index == BY_ID else ""
    if filters.paused:  # a partial index is only taken where its own condition is repeated
        where.append(f"{plus}due = {MAX_MS}")
    if filters.by_wanted:
        where.append("wanted >= ? AND wanted < ?")
        values += filters.between
    elif not filters.paused and (filters.timed or filters.paused is False):
        where.append(f"{plus}due >= ? AND {plus}due < ?")
        values += filters.between
    if filters.recurring is not None:
        where.append("cron <> ''" if filters.recurring else "cron = ''")
    return Question(where or ["1"], values)


def sorted_columns(filters: Filters, order: Order) -> tuple[str, ...]:
    """What a list is sorted by: what is paused by the time that was asked for."""
    if order.field == "id":
        return ("id", "due", "action_key")
    return ("wanted" if filters.paused else "due", "action_key")


def places(
    filters: Filters, order: Order, numbers: list[int] | None, index: str, after: Place | None
) -> tuple[str, list[Any]]:
    """A query for the keys of the rows after a place, in order; its last value is the limit."""
    where, values = conditions(filters, numbers, index)
    columns = sorted_columns(filters, order)
    if order.field == "id" and index != BY_ID:
        where.append("id IS NOT NULL")
    if after is not None:
        sign = "<" if order.descending else ">"
        where.append(f"({', '.join(columns)}) {sign} ({', '.join('?' * len(after))})")
        values.extend(after)
    return (
        f"SELECT due, action_key FROM pending {hint(index)}"  # noqa: S608 our own words
        f" WHERE {' AND '.join(where)} ORDER BY {in_direction(columns, order)} LIMIT ?"
    ), values


def in_direction(columns: tuple[str, ...], order: Order, table: str = "") -> str:
    """For ORDER BY."""
    direction = " DESC" if order.descending else ""
    return ", ".join(f"{table}{column}{direction}" for column in columns)


def counted(database: sqlite3.Connection, index: str, question: Question, cap: int = -1) -> int:
    """How many there are, counted up to a cap; -1 for none."""
    (number,) = database.execute(
        f"SELECT COUNT(*) FROM (SELECT 1 FROM pending {hint(index)}"  # noqa: S608 our words
        f" WHERE {question} LIMIT ?)",
        (*question.values, cap),
    ).fetchone()
    return int(number)


def hint(index: str) -> str:
    """Makes SQLite go by an index."""
    return f"INDEXED BY {index}" if index else ""
