"""Requests as the contract writes them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from punctual_worker.client import (
    Request,
    RequestError,
    cancel_request,
    delivery_request,
    pause_request,
    resume_request,
)


def test_a_request_carries_what_was_asked_for_after_the_users_headers() -> None:
    request = delivery_request(
        "reminders",
        b"v",
        action="REPLACE",
        deliver_at=datetime(2026, 11, 18, 21, 0, tzinfo=timezone(timedelta(hours=1))),
        request_id="é",
        key=b"k",
        headers=[("h", None), ("h", b"\xff")],
        partition=3,
        expires_at=datetime(2026, 11, 18, 21, 0, 0, 5000),
        spread=timedelta(minutes=1),
    )

    assert (request.key, request.value) == (b"k", b"v")
    assert request.headers == [
        ("h", None),
        ("h", b"\xff"),
        ("x-scheduler-action", b"REPLACE"),
        ("x-scheduler-deliver-to", b"reminders"),
        ("x-scheduler-deliver-at", b"2026-11-18T20:00:00.000Z"),
        ("x-scheduler-request-id", "é".encode()),
        ("x-scheduler-deliver-partition", b"3"),
        ("x-scheduler-expires-at", b"2026-11-18T21:00:00.005Z"),
        ("x-scheduler-spread", b"60000ms"),
    ]


def test_a_delay_may_be_text_or_a_timedelta() -> None:
    headers = dict(delivery_request("t", None, delay=timedelta(seconds=1.5)).headers)
    assert headers["x-scheduler-delay"] == b"1500ms"
    headers = dict(delivery_request("t", None, delay="PT15M").headers)
    assert headers["x-scheduler-delay"] == b"PT15M"


@pytest.mark.parametrize(
    ("build", "action"),
    [(cancel_request, b"CANCEL"), (pause_request, b"PAUSE"), (resume_request, b"RESUME")],
)
def test_what_is_about_another_request_has_no_value(
    build: Callable[..., Request], action: bytes
) -> None:
    request = build("r1", key=b"k")

    assert (request.key, request.value) == (b"k", None)
    assert dict(request.headers) == {
        "x-scheduler-action": action,
        "x-scheduler-request-id": b"r1",
    }


def test_a_time_is_wanted_and_only_one() -> None:
    with pytest.raises(RequestError, match="Exactly one of"):
        delivery_request("t", b"")
    with pytest.raises(RequestError, match="Exactly one of"):
        delivery_request("t", b"", delay="1s", deliver_at=datetime.now(UTC))
    with pytest.raises(RequestError, match="Exactly one of"):
        delivery_request("t", b"", delay="1s", cron="* * * * *")


def test_a_recurring_request_says_its_zone_and_misfire_rule() -> None:
    request = delivery_request("t", b"", cron="0 9 * * *", timezone="Europe/Berlin", misfire="all")
    assert request.headers[2:] == [
        ("x-scheduler-cron", b"0 9 * * *"),
        ("x-scheduler-timezone", b"Europe/Berlin"),
        ("x-scheduler-misfire", b"all"),
    ]
