"""Layouts that the parts share."""

import pytest
from punctual_worker.contract import actions, times
from punctual_worker.contract.actions import Plan, Verb


def test_a_plan_survives_being_written() -> None:
    full = Plan(
        Verb.REPLACE,
        due_ms=123,
        destination="a.b-c_d",
        request_id="with | and | in it",
        partition=0,
        expires_ms=-5,
        flags=actions.NULL_VALUE,
        attempt=3,
        scheduled_for_ms=-1,
        source="old-topic",
        misfire="all",
        cron="0 9 * * *",
        timezone="Europe/Berlin",
    )
    assert actions.decode_plan(actions.encode_plan(full)) == full
    assert actions.decode_plan(actions.encode_plan(Plan(Verb.CANCEL, 0, ""))).partition is None


@pytest.mark.parametrize("raw", [b"", b"1|A|x||||||||||||", b"9|A|1|d||||||||||id", b"\xff"])
def test_what_is_not_a_plan_is_said_to_be_none(raw: bytes) -> None:
    with pytest.raises(actions.InvalidPlanError):
        actions.decode_plan(raw)


def test_order_keys_sort_by_due_time_then_key() -> None:
    ordered = [
        actions.order_key(-5, b"0/0/1"),
        actions.order_key(0, b"0/0/2"),
        actions.order_key(255, b"9"),
        actions.order_key(256, b"0"),
        actions.order_key(256, b"0#1"),
        actions.order_key(2**40, b""),
    ]
    assert sorted(ordered) == ordered


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("2h", 7_200_000),
        ("PT15M", 900_000),
        ("P1DT2H", 93_600_000),
        ("p1w", 604_800_000),
        ("PT0.0001S", 1),
        ("P", None),
        ("PT", None),
        ("5", None),
        ("-5s", None),
        ("P1M", None),
    ],
)
def test_durations(text: str, ms: int | None) -> None:
    assert times.duration_ms(text) == ms


def test_times_are_told_to_the_millisecond_in_utc() -> None:
    assert times.format_ms(0) == "1970-01-01T00:00:00.000Z"
    assert times.format_ms(-1) == "1969-12-31T23:59:59.999Z"
    assert times.format_ms(-62_135_596_800_000) == "0001-01-01T00:00:00.000Z"
    assert times.format_ms(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
