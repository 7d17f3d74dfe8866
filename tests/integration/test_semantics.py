"""The semantics table of the contract, row by row, through intake and dispatcher."""

import json
from datetime import datetime

import pytest
from support.kafka import consume_committed
from support.scheduler import RunningScheduler, at

FAR = "PT1H"


def history_of(scheduler: RunningScheduler, request_id: str) -> list[str]:
    records = consume_committed(scheduler.bootstrap_servers, scheduler.topics.history)
    events = [json.loads(r.value or b"{}") for r in records if r.key == request_id.encode()]
    return [event["event"] for event in events]


# Semantics


def test_due_in_the_future_is_delivered_then_and_never_before(
    scheduler: RunningScheduler, out: str
) -> None:
    asked_for = at(1.5)
    scheduler.request({"deliver-to": out, "deliver-at": asked_for})
    (delivered,) = scheduler.delivered(out, 1)
    assert delivered.header("x-scheduler-scheduled-for") == asked_for.encode()
    assert delivered.timestamp_ms >= _ms(asked_for)
    assert delivered.timestamp_ms - _ms(asked_for) < 5_000


@pytest.mark.parametrize("when", ["an hour ago", "1999-12-31T23:59:59Z", "1969-07-20T20:17:40Z"])
def test_due_in_the_past_is_delivered_at_once(
    scheduler: RunningScheduler, out: str, when: str
) -> None:
    moment = at(-3600) if when == "an hour ago" else when
    scheduler.request({"deliver-to": out, "deliver-at": moment})
    assert len(scheduler.delivered(out, 1)) == 1


def test_a_delay_counts_from_the_requests_timestamp(scheduler: RunningScheduler, out: str) -> None:
    request = scheduler.request({"deliver-to": out, "delay": "700ms"})
    (delivered,) = scheduler.delivered(out, 1)
    assert delivered.timestamp_ms >= request.timestamp_ms + 700


def test_adding_the_same_again_changes_nothing(scheduler: RunningScheduler, out: str) -> None:
    fields = {"deliver-to": out, "deliver-at": at(5), "request-id": f"{out}-same"}
    for _ in range(3):
        scheduler.request(fields, headers=[("h", b"1")])
    assert len(scheduler.delivered(out, 1)) == 1
    assert history_of(scheduler, f"{out}-same") == [
        "Scheduled",
        "Unchanged",
        "Unchanged",
        "Delivered",
    ]


def test_adding_something_else_under_a_pending_id_is_rejected(
    scheduler: RunningScheduler, out: str
) -> None:
    fields = {"deliver-to": out, "deliver-at": at(5), "request-id": f"{out}-taken"}
    scheduler.request(fields, value=b"first")
    second = scheduler.request(fields, value=b"second")
    rejection = scheduler.rejection_of(second)
    assert rejection.header("x-scheduler-error-code") == b"request-id-in-use"
    assert rejection.value == b"second"
    assert [r.value for r in scheduler.delivered(out, 1)] == [b"first"]


def test_without_an_id_each_request_is_a_schedule_of_its_own(
    scheduler: RunningScheduler, out: str
) -> None:
    fields = {"deliver-to": out, "deliver-at": at(1)}
    scheduler.request(fields)
    scheduler.request(fields)
    (one, two) = scheduler.delivered(out, 2)
    assert one.header("x-scheduler-source") != two.header("x-scheduler-source")
    assert one.header("x-scheduler-request-id") is None


@pytest.mark.parametrize("new_time", [1.0, -10.0])
def test_replacing_a_pending_one_leaves_only_the_new_one(
    scheduler: RunningScheduler, out: str, new_time: float
) -> None:
    request_id = f"{out}-replaced"
    fields = {"deliver-to": out, "request-id": request_id}
    scheduler.request({**fields, "delay": FAR}, value=b"old")
    scheduler.request({**fields, "action": "Replace", "deliver-at": at(new_time)}, value=b"new")
    assert [r.value for r in scheduler.delivered(out, 1)] == [b"new"]
    assert history_of(scheduler, request_id) == ["Scheduled", "Replaced", "Scheduled", "Delivered"]


def test_replacing_what_is_not_pending_makes_a_new_schedule(
    scheduler: RunningScheduler, out: str
) -> None:
    scheduler.request(
        {"action": "REPLACE", "deliver-to": out, "delay": "10ms", "request-id": f"{out}-new"}
    )
    assert len(scheduler.delivered(out, 1)) == 1


def test_replacing_with_the_same_is_a_no_op(scheduler: RunningScheduler, out: str) -> None:
    before = scheduler.dispatcher.metric("punctual_replace_noop_total")
    fields = {"deliver-to": out, "deliver-at": at(5), "request-id": f"{out}-noop"}
    scheduler.request(fields)
    scheduler.request({**fields, "action": "REPLACE"})
    assert len(scheduler.delivered(out, 1)) == 1
    assert scheduler.dispatcher.metric("punctual_replace_noop_total") == before + 1


def test_a_cancelled_one_is_not_delivered_and_its_id_is_free(
    scheduler: RunningScheduler, out: str
) -> None:
    request_id = f"{out}-c"
    fields = {"deliver-to": out, "request-id": request_id}
    scheduler.request({**fields, "delay": FAR}, value=b"cancelled")
    scheduler.request({"action": "cancel", "request-id": request_id}, value=None)
    scheduler.request({**fields, "delay": "100ms"}, value=b"again")
    assert [r.value for r in scheduler.delivered(out, 1)] == [b"again"]
    assert history_of(scheduler, request_id) == ["Scheduled", "Cancelled", "Scheduled", "Delivered"]


def test_cancelling_what_is_not_there_is_reported_as_missed(
    scheduler: RunningScheduler, out: str
) -> None:
    request_id = f"{out}-late"
    scheduler.request({"deliver-to": out, "delay": "0s", "request-id": request_id})
    assert len(scheduler.delivered(out, 1)) == 1
    too_late = scheduler.request({"action": "CANCEL", "request-id": request_id}, value=None)
    scheduler.wait_until_decided(too_late)
    assert history_of(scheduler, request_id) == ["Scheduled", "Delivered", "CancelMissed"]


def test_a_paused_one_waits_past_its_time_and_goes_on_when_resumed(
    scheduler: RunningScheduler, out: str
) -> None:
    request_id = f"{out}-p"
    when = {"deliver-to": out, "deliver-at": at(1.5)}
    scheduler.request({**when, "request-id": request_id})
    pause = scheduler.request({"action": "pause", "request-id": request_id}, value=None)
    scheduler.wait_until_decided(pause)
    scheduler.request(when, value=b"other")
    assert [r.value for r in scheduler.delivered(out, 1, settle=1)] == [b"other"]
    scheduler.request({"action": "RESUME", "request-id": request_id}, value=None)
    late = next(r for r in scheduler.delivered(out, 2) if r.value == b"value")
    assert late.header("x-scheduler-scheduled-for") == when["deliver-at"].encode()
    told = ["Scheduled", "Paused", "Resumed", "Delivered"]
    assert history_of(scheduler, request_id) == told


def test_pausing_what_is_not_there_is_reported_as_missed(
    scheduler: RunningScheduler, out: str
) -> None:
    request_id = f"{out}-none"
    for action in ("PAUSE", "RESUME"):
        request = scheduler.request({"action": action, "request-id": request_id}, value=None)
        scheduler.wait_until_decided(request)
    assert history_of(scheduler, request_id) == ["PauseMissed", "ResumeMissed"]


def test_an_id_can_be_used_again_after_delivery(scheduler: RunningScheduler, out: str) -> None:
    fields = {"deliver-to": out, "delay": "0s", "request-id": f"{out}-again"}
    scheduler.request(fields, value=b"1")
    scheduler.delivered(out, 1, settle=0)
    scheduler.request(fields, value=b"2")
    assert {r.value for r in scheduler.delivered(out, 2)} == {b"1", b"2"}


def test_past_its_expiry_it_is_reported_instead_of_delivered(
    scheduler: RunningScheduler, out: str
) -> None:
    request = scheduler.request(
        {"deliver-to": out, "deliver-at": at(-10), "expires-at": at(-5), "request-id": f"{out}-e"}
    )
    assert scheduler.rejection_of(request).header("x-scheduler-error-code") == b"expired"
    assert consume_committed(scheduler.bootstrap_servers, out) == []
    assert "Expired" in history_of(scheduler, f"{out}-e")


# Recurring


def test_a_recurring_one_fires_again_and_again_until_it_is_cancelled(
    scheduler: RunningScheduler, out: str
) -> None:
    request_id = f"{out}-every-second"
    scheduler.request({"deliver-to": out, "cron": "* * * * * *", "request-id": request_id})
    scheduler.delivered(out, 3, settle=0)
    cancel = scheduler.request({"action": "CANCEL", "request-id": request_id}, value=None)
    scheduler.wait_until_decided(cancel)
    fired = scheduler.delivered(out, 3, settle=2)
    times = [_ms((r.header("x-scheduler-scheduled-for") or b"").decode()) for r in fired]
    assert all(moment % 1000 == 0 for moment in times)
    assert len(set(times)) == len(times)
    # the first may be a catch-up for several; from then on none is left out
    assert sorted(times)[1:] == list(range(sorted(times)[1], max(times) + 1, 1000))
    assert all(r.timestamp_ms >= moment for r, moment in zip(fired, times, strict=True))
    assert "Cancelled" in history_of(scheduler, request_id)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("invalid-cron", {"cron": "0 0 30 2 *"}),
        ("invalid-timezone", {"cron": "0 9 * * *", "timezone": "Mars/Olympus_Mons"}),
    ],
)
def test_what_only_the_calendar_can_tell_is_rejected_too(
    scheduler: RunningScheduler, out: str, code: str, fields: dict[str, str]
) -> None:
    request = scheduler.request({"deliver-to": out, **fields})
    assert scheduler.rejection_of(request).header("x-scheduler-error-code") == code.encode()


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
