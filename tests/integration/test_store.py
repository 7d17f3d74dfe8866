"""The local store on disk: what it keeps, and when it is not to be trusted."""

from pathlib import Path

import pytest
from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.dispatch.deliveries import entry_of, unpack
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.store import Store, StoreMemory, now_ms
from punctual_worker.dispatch.table import Changes

HOUR_MS = 3_600_000


def entry(offset: int, due_ms: int, request_id: str = "") -> Entry:
    key = actions.action_key(actions.Coordinates("0", 0, offset))
    plan = Plan(Verb.ADD, due_ms, "somewhere", request_id)
    its_headers = [("h", None), ("h", b"")] if offset % 2 else [("h", None), ("g", b"")]
    return Entry(key, plan, None, b"\x00\xff", its_headers)


def changes(*puts: Entry, remove: tuple[Entry, ...] = ()) -> Changes:
    made = Changes()
    for one in puts:
        made.put(one.order, one)
    for one in remove:
        made.remove(one.order, one.plan.request_id)
    return made


@pytest.fixture
def memory() -> StoreMemory:
    return StoreMemory()


def opened(
    path: Path,
    memory: StoreMemory,
    *,
    topic_id: str = "t",
    max_age_ms: int = HOUR_MS,
    trace: bool = True,
) -> Store:
    policy = Policy(requests_topic="requests", trace=trace)
    return Store(path, memory=memory, policy=policy, topic_id=topic_id, max_age_ms=max_age_ms)


def test_rows_come_back_in_order_and_as_they_were(tmp_path: Path, memory: StoreMemory) -> None:
    store = opened(tmp_path / "s", memory)
    entries = [entry(3, 50), entry(1, 100, "a"), entry(2, 100), entry(0, -7)]
    store.write(changes(*entries), position=4)
    store.close()
    store = opened(tmp_path / "s", memory)
    assert (store.position, store.rows) == (4, 4)
    until = actions.order_key(101, b"")
    found = store.read(start=b"", until=until, most=9, most_bytes=1_000)
    in_order = [entries[3], entries[0], entries[1], entries[2]]
    assert found.orders == [one.order for one in in_order]
    assert [entry_of(one) for one in unpack(found.rows)] == in_order
    assert found.end == until
    third, last = found.orders[2:]
    assert store.read(start=third, until=last, most=9, most_bytes=1_000).orders == [third]
    assert store.first_after(last) is None
    store.close()


@pytest.mark.parametrize(("most", "most_bytes"), [(20, 1 << 20), (1_000, 1_000)])
def test_rows_are_read_in_stretches_that_meet(
    tmp_path: Path, memory: StoreMemory, most: int, most_bytes: int
) -> None:
    store = opened(tmp_path / "s", memory)
    entries = [entry(offset, offset) for offset in range(100)]
    marks = {entry(offset, offset).order: None for offset in range(30, 50)}
    store.write(changes(*entries), position=100)
    store.write(Changes(puts=dict(marks)), position=100)
    start, until, found = b"", actions.order_key(90, b""), []
    while start < until:
        stretch = store.read(start=start, until=until, most=most, most_bytes=most_bytes)
        assert len(stretch.orders) == len(stretch.rows) < 40
        found += stretch.orders
        start = stretch.end
    assert found == [one.order for one in entries[:90] if one.order not in marks]
    store.close()


def test_an_id_used_twice_finds_both_until_one_is_removed(
    tmp_path: Path, memory: StoreMemory
) -> None:
    store = opened(tmp_path / "s", memory)
    one, two = entry(1, 10, "a"), entry(2, 20, "a")
    store.write(changes(one), position=1)
    store.write(changes(two), position=2)
    assert set(store.find("a")) == {one.order, two.order}
    store.write(changes(remove=(two,)), position=3)
    assert list(store.find("a")) == [one.order]
    store.write(changes(remove=(one, two)), position=4)
    assert (list(store.find("a")), store.rows) == ([], 0)
    store.close()


def test_fired_rows_and_marks_are_swept_from_wherever_they_come(
    tmp_path: Path, memory: StoreMemory
) -> None:
    store = opened(tmp_path / "s", memory)
    early, late = entry(1, 10, "a"), entry(2, 20)
    store.write(changes(early, late), position=2)
    assert store.fired(until=early.order, limit=9) == [(early.order, "a")]
    store.write(changes(remove=(early,)), position=2)
    store.swept_up_to(early.order)
    mark = Changes(puts={entry(3, 5).order: None})  # fired as it came, before what was swept
    store.write(mark, position=3)
    assert [order for order, _ in store.fired(until=late.order, limit=9)] == [
        entry(3, 5).order,
        late.order,
    ]
    assert store.get(entry(3, 5).order) is None
    store.close()


@pytest.mark.parametrize(
    ("topic_id", "max_age_ms", "trace", "kept"),
    [
        ("t", HOUR_MS, True, True),
        ("u", HOUR_MS, True, False),
        ("t", 1, True, False),
        ("t", HOUR_MS, False, False),
    ],
)
def test_a_store_of_another_topic_or_setting_or_too_old_is_forgotten(
    tmp_path: Path, memory: StoreMemory, topic_id: str, max_age_ms: int, trace: bool, kept: bool
) -> None:
    store = opened(tmp_path / "s", memory)
    store.write(changes(entry(1, 10)), position=1)
    store.in_step(now_ms() - 60_000)
    store.write(changes(entry(2, 10)), position=2)  # writing alone makes nothing younger
    store.close()
    store = opened(tmp_path / "s", memory, topic_id=topic_id, max_age_ms=max_age_ms, trace=trace)
    assert (store.position, store.rows) == ((2, 2) if kept else (0, 0))
    store.close()


def test_a_damaged_store_is_built_anew(tmp_path: Path, memory: StoreMemory) -> None:
    store = opened(tmp_path / "s", memory)
    store.write(changes(entry(1, 10)), position=1)
    store.close()
    (tmp_path / "s" / "CURRENT").write_text("nonsense")
    store = opened(tmp_path / "s", memory)
    assert (store.position, store.rows) == (0, 0)
    store.close()
