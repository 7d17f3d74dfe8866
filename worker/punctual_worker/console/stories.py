"""What became of requests: rejections and the events of history, from the view."""

import json
from typing import Any, NamedTuple

from punctual_worker.console.filters import CursorError
from punctual_worker.console.reading import Reader
from punctual_worker.console.rows import EventRow, RejectionRow
from punctual_worker.console.schema import OFFSET_BITS

_MASK = (1 << OFFSET_BITS) - 1
_COLUMNS = "number, at, id, codes, reason, source, destination, size"


class RejectionPage(NamedTuple):
    """Some rejections, newest first, and where the next ones begin."""

    rows: list[RejectionRow]
    next_cursor: str | None


class Stories:
    """Answers from any thread."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def rejections(
        self,
        *,
        code: str = "",
        id_prefix: str = "",
        destination: str = "",
        limit: int = 50,
        cursor: str | None = None,
    ) -> RejectionPage:
        """A page of the rejections that match."""
        where, values = ["1"], list[Any]()
        if code:
            where.append("instr(',' || codes || ',', ?)")
            values.append(f",{code},")
        if id_prefix:
            where.append("substr(id, 1, ?) = ?")
            values += [len(id_prefix), id_prefix]
        if destination:
            where.append("destination = ?")
            values.append(destination)
        if cursor:
            where.append("(at, number) < (?, ?)")
            values += _decode(cursor)
        with self._reader.reading() as database:
            found = database.execute(
                f"SELECT {_COLUMNS} FROM rejections WHERE {' AND '.join(where)}"  # noqa: S608
                " ORDER BY at DESC, number DESC LIMIT ?",
                (*values, limit + 1),
            ).fetchall()
        more = len(found) > limit
        found = found[:limit]
        next_cursor = f"{found[-1][1]}.{found[-1][0]}" if more else None
        return RejectionPage([_rejection(row) for row in found], next_cursor)

    def rejection_of(self, source: str) -> RejectionRow | None:
        """The rejection of one request, by where the request stands."""
        with self._reader.reading() as database:
            found = database.execute(
                f"SELECT {_COLUMNS} FROM rejections WHERE source = ? LIMIT 1",  # noqa: S608
                (source,),
            ).fetchone()
        return None if found is None else _rejection(found)

    def rejections_of(self, request_id: str, limit: int = 20) -> list[RejectionRow]:
        """The latest rejections of an id, newest first."""
        with self._reader.reading() as database:
            found = database.execute(
                f"SELECT {_COLUMNS} FROM rejections WHERE id = ?"  # noqa: S608 our own words
                " ORDER BY at DESC, number DESC LIMIT ?",
                (request_id, limit),
            ).fetchall()
        return [_rejection(row) for row in found]

    def rejections_by_code(self) -> list[tuple[str, int]]:
        """How many kept rejections there are of each code, most first."""
        with self._reader.reading() as database:
            found = database.execute(
                "SELECT codes, COUNT(*) FROM rejections GROUP BY codes"
            ).fetchall()
        totals: dict[str, int] = {}
        for codes, number in found:
            for code in filter(None, codes.split(",")):
                totals[code.strip()] = totals.get(code.strip(), 0) + number
        return sorted(totals.items(), key=lambda item: (-item[1], item[0]))

    def events(self, schedule_id: str, limit: int = 200) -> list[EventRow]:
        """The latest events of a schedule, oldest first."""
        with self._reader.reading() as database:
            found = database.execute(
                "SELECT number, id, at, event, content FROM events WHERE id = ?"
                " ORDER BY at DESC, number DESC LIMIT ?",
                (schedule_id, limit),
            ).fetchall()
        rows = [EventRow(number >> OFFSET_BITS, number & _MASK, *rest) for number, *rest in found]
        return rows[::-1]


def event_content(row: EventRow) -> dict[str, Any]:
    """The event as it stands in the log."""
    content = json.loads(row.content)
    return content if isinstance(content, dict) else {}


def _rejection(row: tuple[Any, ...]) -> RejectionRow:
    number, *rest = row
    return RejectionRow(number >> OFFSET_BITS, number & _MASK, *rest)


def _decode(cursor: str) -> list[int]:
    at, dot, number = cursor.partition(".")
    digits = at.removeprefix("-") + number
    if not dot or not (digits.isascii() and digits.isdecimal()) or len(digits) > 36:
        raise CursorError("cursor: take it from the previous page, as it is")
    place = [int(at or 0), int(number or 0)]
    if any(abs(value) >= 1 << 63 for value in place):
        raise CursorError("cursor: take it from the previous page, as it is")
    return place
