"""The view's database: what is asked and what is counted stay one."""

import random
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from punctual_worker.console import reading, schema, searching
from punctual_worker.console.filters import CursorError, Filters, Order, decode_cursor
from punctual_worker.console.queries import Queries
from punctual_worker.console.reading import Reader
from punctual_worker.console.rows import EventRow, PendingRow, RejectionRow, Removal
from punctual_worker.console.stories import Stories
from punctual_worker.console.view import Batch, View
from punctual_worker.contract.actions import NEVER_MS

HOUR = schema.HOUR_MS
IDENTITY = {"topic": "id"}


def row(
    due: int,
    key: str,
    id: str | None = None,
    destination: str = "orders",
    *,
    partition: int = 0,
    offset: int = 0,
    cron: str = "",
    paused: bool = False,
) -> PendingRow:
    at = NEVER_MS if paused else due
    return PendingRow(at, key, id, destination, partition, offset, 1, due, 0, None, cron, "")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return schema.open_writer(tmp_path / "v.db", identity=IDENTITY, now_ms=0, max_age_ms=1000)


@pytest.fixture
def view(path: Path) -> View:
    view = View(path)
    view.make_searchable()
    return view


@pytest.fixture
def queries(path: Path, view: View) -> Queries:
    return Queries(Reader(path))


def put(view: View, *rows: PendingRow) -> None:
    batch = Batch()
    for each in rows:
        batch.put(each)
    view.apply(batch, now_ms=1)


@pytest.mark.parametrize("few", [0, 40, 1_000])
def test_every_list_and_count_agrees_with_a_plain_search(
    view: View, queries: Queries, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    chance = random.Random(7)
    rows = [
        row(
            chance.randrange(10 * HOUR),
            f"0/0/{number}",
            None if chance.random() < 0.1 else f"id-{chance.randrange(40)}",
            chance.choice(["orders", "orders-eu", "mail"]),
            cron="* * * * *" if chance.random() < 0.1 else "",
            paused=chance.random() < 0.2,
        )
        for number in range(300)
    ]
    put(view, *rows)
    # With none it takes the ways of ten million rows, with the others those of a few.
    monkeypatch.setattr(searching, "_FEW", few)
    monkeypatch.setattr(searching, "_MANY", few)
    for _ in range(150):
        start = chance.choice([None, chance.randrange(10 * HOUR)])
        filters = Filters(
            id_prefix=chance.choice(["", "", "id-", "id-1", "id-17", "zz"]),
            destination=chance.choice(["", "orders", "orders*", "mail", "none"]),
            due_from=start,
            due_to=chance.choice([None, (start or 0) + chance.randrange(5 * HOUR)]),
            recurring=chance.choice([None, True, False]),
            paused=chance.choice([None, True, False]),
        )
        order = Order(chance.choice(["due", "id"]), chance.random() < 0.5)
        expected = [each for each in rows if matches(each, filters)]
        assert queries.count(filters).number == len(expected)
        assert queries.count(filters, exact=True) == (len(expected), True)
        if order.field == "id":
            expected = [each for each in expected if each.id is not None]
            expected.sort(key=lambda e: (e.id, e.due, e.action_key), reverse=order.descending)
        else:
            by_wanted = bool(filters.paused)
            expected.sort(
                key=lambda e: (e.wanted if by_wanted else e.due, e.action_key),
                reverse=order.descending,
            )
        assert all_pages(queries, filters, order, limit=chance.choice([1, 7, 500])) == expected
        heights = queries.histogram(filters, start=0, step=HOUR, buckets=12)
        by_hour = [
            (each.wanted if filters.paused else each.due) // HOUR
            for each in rows
            if matches(each, replace(filters, due_from=None, due_to=None))
        ]
        assert heights == [by_hour.count(hour) for hour in range(12)]


def matches(each: PendingRow, filters: Filters) -> bool:
    destination = filters.destination
    due = each.wanted if filters.paused else each.due
    timed = filters.due_from is not None or filters.due_to is not None
    return (
        (not filters.id_prefix or (each.id or "").startswith(filters.id_prefix))
        and (
            each.destination.startswith(destination[:-1])
            if destination.endswith("*")
            else not destination or each.destination == destination
        )
        and (filters.due_from is None or due >= filters.due_from)
        and (filters.due_to is None or due < filters.due_to)
        and (filters.paused is None or (each.due == NEVER_MS) is filters.paused)
        and not (timed and filters.paused is None and each.due == NEVER_MS)
        and (filters.recurring is None or bool(each.cron) is filters.recurring)
    )


def all_pages(queries: Queries, filters: Filters, order: Order, limit: int) -> list[PendingRow]:
    found, cursor = [], None
    while True:
        page = queries.page(filters, order, limit=limit, cursor=cursor)
        found += page.rows
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_tallies_follow_removals_repetitions_and_what_has_fired(
    view: View, queries: Queries
) -> None:
    put(view, row(1, "0/0/1", offset=5), row(2, "0/0/2", offset=6), row(3, "0/0/3", offset=7))
    put(view, row(1, "0/0/1", offset=9))
    assert queries.count(Filters()).number == 3
    found = queries.get(1, "0/0/1")
    assert found is not None
    assert found.offset == 9
    batch = Batch()
    batch.remove(Removal(2, "0/0/2"))
    batch.remove(Removal(2, "0/0/2"))
    view.apply(batch, now_ms=1)
    assert queries.count(Filters()).number == 2
    assert view.hide_fired(0, position=8, cursor=(3, "0/0/3")) == 1  # offset 9 is not taken in
    assert [each.action_key for each in queries.page(Filters()).rows] == ["0/0/1"]
    assert queries.count(Filters()).number == 1
    assert queries.by_destination() == [("orders", 1)]


def test_what_is_paused_is_pending_but_due_at_no_time(view: View, queries: Queries) -> None:
    put(view, row(2 * HOUR, "0/0/1", "a", paused=True), row(HOUR, "0/0/2", "b", paused=True))
    assert queries.next_due() is None
    put(view, row(3 * HOUR, "0/0/3", "c"))
    assert queries.count(Filters()).number == 3
    assert queries.count(Filters(paused=True)).number == 2
    assert queries.count(Filters(due_to=4 * HOUR)).number == 1, "overdue, due soon"
    assert queries.count(Filters(due_from=0)).number == 1
    assert queries.next_due() == 3 * HOUR
    assert [each.id for each in queries.page(Filters()).rows] == ["c", "a", "b"], "paused ones last"
    assert [each.id for each in queries.page(Filters(paused=True)).rows] == ["b", "a"]
    assert queries.histogram(Filters(), start=0, step=HOUR, buckets=4) == [0, 0, 0, 1]
    far = NEVER_MS // HOUR * HOUR
    assert queries.histogram(Filters(), start=far, step=HOUR, buckets=4) == [0, 0, 0, 0]
    only = Filters(paused=True)
    assert queries.histogram(only, start=0, step=HOUR, buckets=4) == [0, 1, 1, 0]


def test_a_search_that_goes_on_too_long_takes_another_way(
    path: Path, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(view, *(row(number, f"0/0/{number}", f"id-{number}") for number in range(2_000)))
    monkeypatch.setattr(searching, "_FEW", 0)
    monkeypatch.setattr(searching, "_MANY", 0)
    monkeypatch.setattr(searching, "_QUICK_SECONDS", -1.0)
    monkeypatch.setattr(reading, "_STEPS_PER_LOOK", 10)
    with pytest.raises(reading.TooSlowError):
        Queries(Reader(path, limit_seconds=-1.0)).page(Filters())
    found = Queries(Reader(path)).page(Filters(id_prefix="id-1999"))
    assert [each.id for each in found.rows] == ["id-1999"]


def test_within_a_batch_the_last_word_counts(view: View, queries: Queries) -> None:
    batch = Batch()
    batch.put(row(1, "0/0/1"))
    batch.remove(Removal(1, "0/0/1"))
    batch.remove(Removal(2, "0/0/2"))
    batch.put(row(2, "0/0/2"))
    view.apply(batch, now_ms=1)
    assert [each.action_key for each in queries.page(Filters()).rows] == ["0/0/2"]


def test_the_first_reading_is_arranged_at_its_end_and_the_last_word_counts(path: Path) -> None:
    first = View(path)
    put(first, row(5, "0/0/5", "e"), row(1, "0/0/1", "a", offset=1), row(3, "0/0/3", "c"))
    removal = Batch()
    removal.remove(Removal(3, "0/0/3"))
    removal.remove(Removal(9, "0/0/9"))
    first.apply(removal, now_ms=1)
    first.close()
    again = View(path)  # it was stopped in the middle
    put(again, row(1, "0/0/1", "a", offset=7), row(NEVER_MS, "0/0/2#1", "b"))
    again.make_searchable()
    queries = Queries(Reader(path))
    assert [(each.id, each.offset) for each in queries.page(Filters()).rows] == [
        ("a", 7),
        ("e", 0),
        ("b", 0),
    ]
    assert queries.count(Filters()).number == 3
    put(again, row(3, "0/0/3", "c"))
    again.make_searchable()
    assert queries.count(Filters(paused=False)).number == 3
    again.close()


def test_arranging_can_be_interrupted_and_is_done_next_time(path: Path) -> None:
    first = View(path)
    put(first, *(row(number, f"0/0/{number}", f"id-{number}") for number in range(100_000)))
    stop = threading.Event()

    def interrupt() -> None:
        while not stop.wait(0.001):
            first.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        first.make_searchable()
    stop.set()
    thread.join()
    first.close()
    again = View(path)
    again.make_searchable()
    assert Queries(Reader(path)).count(Filters()).number == 100_000
    again.close()


def test_rejections_come_newest_first_and_by_code(path: Path, view: View) -> None:
    batch = Batch()
    for number, codes in enumerate(["a", "a,b", "ab", "b"]):
        batch.rejections.append(
            RejectionRow(number % 2, number, 100 + number, f"id-{number}", codes, "", "", "", 0)
        )
    view.apply(batch, now_ms=1)
    stories = Stories(Reader(path))
    assert [each.codes for each in stories.rejections(code="a").rows] == ["a,b", "a"]
    first = stories.rejections(limit=3)
    second = stories.rejections(limit=3, cursor=first.next_cursor)
    assert [each.at for each in first.rows + second.rows] == [103, 102, 101, 100]
    assert stories.rejections_by_code() == [("a", 2), ("b", 2), ("ab", 1)]
    assert [each.id for each in stories.rejections(id_prefix="id-2").rows] == ["id-2"]
    view.trim("rejections", {0: 1, 1: 2})
    assert [each.offset for each in stories.rejections().rows] == [3, 2]


def test_a_story_is_told_in_order(path: Path, view: View) -> None:
    batch = Batch()
    batch.events += [EventRow(0, 2, "a", 20, "Delivered", "{}"), EventRow(0, 1, "a", 10, "S", "{}")]
    view.apply(batch, now_ms=1)
    assert [each.at for each in Stories(Reader(path)).events("a")] == [10, 20]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "!!",
        "W10",
        "WyJkdWUiLDFd",
        "WyJkdWUiLCJhIiwiYiJd",
        "bnVsbA",
        "ä",
        "WyJkdWUiLDEsIlx1ZDgwMCJd",
    ],
)
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(CursorError):
        decode_cursor(cursor, Order())


def test_a_copy_that_cannot_be_trusted_is_made_anew(path: Path, view: View) -> None:
    put(view, row(1, "0/0/1"))
    view.close()

    def pending(identity: dict[str, str], now_ms: int) -> int:
        schema.open_writer(path, identity=identity, now_ms=now_ms, max_age_ms=1000)
        with sqlite3.connect(path) as database:
            return database.execute("SELECT COUNT(*) FROM pending").fetchone()[0]

    assert pending(IDENTITY, 1000) == 1
    assert pending(IDENTITY, 1002) == 0, "too old"
    assert pending({"topic": "another"}, 1002) == 0
    path.write_bytes(b"not a database at all" * 100)
    assert pending(IDENTITY, 1) == 0
