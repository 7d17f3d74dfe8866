"""From log records to rows."""

import json

import pytest
from punctual_worker.console import rows
from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb


def action(plan: Plan, key: bytes = b"0/1/2", value: bytes = b"v") -> rows.PendingRow:
    found = rows.read_action(3, 7, key, value, actions.action_headers([], b"k", plan))
    assert isinstance(found, rows.PendingRow)
    return found


def test_an_action_becomes_a_row() -> None:
    row = action(Plan(Verb.ADD, 1000, "orders", "id-1", expires_ms=5000))
    assert (row.due, row.action_key, row.id, row.destination) == (1000, "0/1/2", "id-1", "orders")
    assert (row.partition, row.offset, row.size, row.expires) == (3, 7, 1, 5000)


def test_without_a_request_id_the_coordinates_name_it() -> None:
    row = action(Plan(Verb.ADD, 1000, "orders"), key=b"0/1/2#4")
    assert row.id is None
    assert row.schedule_id == "0/1/2"


def test_a_null_value_has_no_size() -> None:
    assert action(Plan(Verb.ADD, 1, "t", flags=actions.NULL_VALUE), value=b"").size is None


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"0/1/2", b"v", []),
        (b"0/1/2", b"v", [("x-scheduler-plan", b"nonsense")]),
        (b"a stranger", b"v", actions.action_headers([], None, Plan(Verb.ADD, 1, "t"))),
        (b"0/1/2", b"", actions.action_headers([], None, Plan(Verb.CANCEL, 0, "", "id"))),
        (b"0/1/2", None, []),
        (b"0/1/2", None, [("x-scheduler-due", b"soon")]),
    ],
)
def test_what_nobody_waits_for_is_no_row(key: bytes, value: bytes | None, headers: list) -> None:
    assert rows.read_action(0, 0, key, value, headers) is None


def test_a_tombstone_names_what_it_removes() -> None:
    found = rows.read_action(0, 0, b"0/1/2", None, [("x-scheduler-due", b"1000")])
    assert found == rows.Removal(1000, "0/1/2")


@pytest.mark.parametrize(
    ("key", "position", "cursor", "fired"),
    [
        (b"0/1/2", 8, (1000, "0/1/2"), True),
        (b"0/1/2", 8, (1000, "0/1/1"), False),
        (b"0/1/2", 7, (2000, ""), False),  # not taken in yet
        (b"0/1/2#1", 0, (2000, ""), True),  # the dispatcher's own
    ],
)
def test_the_checkpoint_tells_what_has_fired(
    key: bytes, position: int, cursor: tuple[int, str], fired: bool
) -> None:
    row = action(Plan(Verb.ADD, 1000, "t"), key=key)
    assert rows.has_fired(row, position=position, cursor=cursor) is fired


def test_a_rejection_of_any_bytes_becomes_a_row() -> None:
    headers = [
        ("x-scheduler-request-id", b"\xff"),
        ("x-scheduler-error-code", b"not-utf8"),
        ("x-scheduler-rejected-at", b"1970-01-01T00:00:01.000Z"),
    ]
    row = rows.read_rejection(1, 2, 99, None, headers)
    assert (row.at, row.id, row.codes, row.size) == (1000, "\ufffd", "not-utf8", None)


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{}", b"nonsense", b'{"event": "x"}'])
def test_what_is_not_an_event_is_left_out(value: bytes | None) -> None:
    assert rows.read_event(0, 0, 0, b"id", value) is None


def test_an_event_keeps_all_it_says() -> None:
    content = {"event": "Delivered", "id": "a", "at": "1970-01-01T00:00:01.000Z", "latenessMs": 3}
    row = rows.read_event(0, 5, 9, b"a", json.dumps(content).encode())
    assert row is not None
    assert (row.id, row.event, row.at, json.loads(row.content)) == ("a", "Delivered", 1000, content)
