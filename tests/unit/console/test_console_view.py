"""The view's database: what is asked and what is counted stay one."""

import random
import sqlite3
from pathlib import Path

import pytest
from punctual_worker.console import schema
from punctual_worker.console.filters import CursorError, Filters, Order, decode_cursor
from punctual_worker.console.queries import Queries
from punctual_worker.console.reading import Reader
from punctual_worker.console.rows import EventRow, PendingRow, RejectionRow, Removal
from punctual_worker.console.stories import Stories
from punctual_worker.console.view import Batch, View

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
) -> PendingRow:
    return PendingRow(due, key, id, destination, partition, offset, 1, due, 0, None, cron, "")


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


def test_every_list_and_count_agrees_with_a_plain_search(view: View, queries: Queries) -> None:
    chance = random.Random(7)
    rows = [
        row(
            chance.randrange(10 * HOUR),
            f"0/0/{number}",
            None if chance.random() < 0.1 else f"id-{chance.randrange(40)}",
            chance.choice(["orders", "orders-eu", "mail"]),
            cron="* * * * *" if chance.random() < 0.1 else "",
        )
        for number in range(300)
    ]
    put(view, *rows)
    for _ in range(150):
        start = chance.choice([None, chance.randrange(10 * HOUR)])
        filters = Filters(
            id_prefix=chance.choice(["", "", "id-", "id-1", "id-17", "zz"]),
            destination=chance.choice(["", "orders", "orders*", "mail", "none"]),
            due_from=start,
            due_to=chance.choice([None, (start or 0) + chance.randrange(5 * HOUR)]),
            recurring=chance.choice([None, True, False]),
        )
        order = Order(chance.choice(["due", "id"]), chance.random() < 0.5)
        expected = [each for each in rows if matches(each, filters)]
        assert queries.count(filters).number == len(expected)
        assert queries.count(filters, exact=True) == (len(expected), True)
        if order.field == "id":
            expected = [each for each in expected if each.id is not None]
            expected.sort(key=lambda e: (e.id, e.due, e.action_key), reverse=order.descending)
        else:
            expected.sort(key=lambda e: (e.due, e.action_key), reverse=order.descending)
        assert all_pages(queries, filters, order, limit=chance.choice([1, 7, 500])) == expected
        heights = queries.histogram(filters, start=0, step=HOUR, buckets=12)
        by_hour = [each.due // HOUR for each in rows if matches(each, filters_without_due(filters))]
        assert heights == [by_hour.count(hour) for hour in range(12)]


def matches(each: PendingRow, filters: Filters) -> bool:
    destination = filters.destination
    return (
        (not filters.id_prefix or (each.id or "").startswith(filters.id_prefix))
        and (
            each.destination.startswith(destination[:-1])
            if destination.endswith("*")
            else not destination or each.destination == destination
        )
        and (filters.due_from is None or each.due >= filters.due_from)
        and (filters.due_to is None or each.due < filters.due_to)
        and (filters.recurring is None or bool(each.cron) is filters.recurring)
    )


def filters_without_due(filters: Filters) -> Filters:
    return Filters(filters.id_prefix, filters.destination, recurring=filters.recurring)


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


def test_within_a_batch_the_last_word_counts(view: View, queries: Queries) -> None:
    batch = Batch()
    batch.put(row(1, "0/0/1"))
    batch.remove(Removal(1, "0/0/1"))
    batch.remove(Removal(2, "0/0/2"))
    batch.put(row(2, "0/0/2"))
    view.apply(batch, now_ms=1)
    assert [each.action_key for each in queries.page(Filters()).rows] == ["0/0/2"]


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
