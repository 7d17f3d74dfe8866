"""Fires of recurring schedules: zones, days when clocks change, and what an outage leaves."""

from datetime import UTC, datetime

import pytest
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.contract.codes import Code
from punctual_worker.contract.times import to_ms
from punctual_worker.dispatch import recurrence


def plan(cron: str, timezone: str = "", misfire: str = "") -> Plan:
    return Plan(Verb.ADD, 0, "somewhere", cron=cron, timezone=timezone, misfire=misfire)


def ms(text: str) -> int:
    return to_ms(datetime.fromisoformat(text).replace(tzinfo=UTC))


def fires(cron: str, timezone: str, after: str, count: int) -> list[str]:
    found, moment = [], ms(after)
    for _ in range(count):
        moment = recurrence.next_fire(plan(cron, timezone), moment)
        found.append(datetime.fromtimestamp(moment / 1000, UTC).strftime("%m-%d %H:%M:%S"))
    return found


@pytest.mark.parametrize(
    ("cron", "timezone", "after", "expected"),
    [
        ("0 9 * * MON-FRI", "", "2026-11-20T12:00", ["11-23 09:00:00", "11-24 09:00:00"]),
        ("*/20 * * * * *", "", "2026-11-20T12:00:05", ["11-20 12:00:20", "11-20 12:00:40"]),
        ("0 9 * * *", "America/New_York", "2026-11-20T00:00", ["11-20 14:00:00"]),
        ("0 0 L * *", "Asia/Kolkata", "2026-02-01T00:00", ["02-27 18:30:00"]),
        # 02:30 does not exist in Berlin on 29 March: right after the gap, then as ever
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-29 01:00:00", "03-30 00:30:00"]),
        # 02:30 occurs twice in Berlin on 25 October: the first time only
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["10-25 00:30:00", "10-26 01:30:00"]),
        # an interval keeps its rhythm through the repeated hour
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-10-24T23:45",
            ["10-25 00:00:00", "10-25 00:30:00", "10-25 01:00:00", "10-25 01:30:00"],
        ),
        # New York: 8 March forward, 1 November back
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["03-08 07:00:00"]),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00",
            ["11-01 05:30:00", "11-02 06:30:00"],
        ),
        # Lord Howe moves by half an hour only
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", ["10-03 15:30:00"]),
    ],
)
def test_fires_follow_the_wall_clock_of_their_zone(
    cron: str, timezone: str, after: str, expected: list[str]
) -> None:
    assert fires(cron, timezone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [("", "12:00"), ("once", "12:00"), ("skip", "12:00"), ("all", "09:00")],
)
def test_after_an_outage_the_misfire_rule_says_which_fire_follows(
    misfire: str, expected: str
) -> None:
    hourly = plan("0 * * * *", misfire=misfire)
    following = recurrence.fire_after(hourly, ms("2026-11-20T08:00"), ms("2026-11-20T11:30"))
    assert following == ms(f"2026-11-20T{expected}")


def test_only_skip_leaves_a_late_fire_out() -> None:
    late = ms("2026-11-20T08:00:30")
    for misfire, left_out in (("skip", True), ("once", False), ("all", False), ("", False)):
        fire = plan("0 8 * * *", misfire=misfire)._replace(due_ms=ms("2026-11-20T08:00"))
        assert recurrence.is_skipped(fire, late) is left_out
        assert not recurrence.is_skipped(fire, ms("2026-11-20T08:00:01"))


@pytest.mark.parametrize(
    ("cron", "timezone", "code"),
    [
        ("0 0 30 2 *", "", Code.INVALID_CRON),
        ("0 24 * * *", "", Code.INVALID_CRON),
        ("1 2 3", "", Code.INVALID_CRON),
        ("0 0 * * *", "Mars/Olympus_Mons", Code.INVALID_TIMEZONE),
        ("0 0 * * *", "../../etc/passwd", Code.INVALID_TIMEZONE),
    ],
)
def test_what_can_never_fire_is_refused_with_its_code(cron: str, timezone: str, code: Code) -> None:
    with pytest.raises(recurrence.RecurrenceError) as caught:
        recurrence.next_fire(plan(cron, timezone), 0)
    assert caught.value.code is code


def test_a_fire_that_is_late_because_its_delivery_failed_is_not_skipped() -> None:
    fire = plan("0 8 * * *", misfire="skip")._replace(due_ms=ms("2026-11-20T08:00"), attempt=2)
    assert not recurrence.is_skipped(fire, ms("2026-11-20T08:05"))


def test_a_request_without_a_timestamp_does_not_fire_for_all_of_history() -> None:
    now = ms("2026-11-20T08:00")
    first = recurrence.first_fire(plan("0 0 * * *", misfire="all")._replace(due_ms=-1), now)
    assert first == ms("2025-11-20T00:00")
