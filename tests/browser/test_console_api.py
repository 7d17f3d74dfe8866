"""The API with intake and dispatcher behind it: what a write becomes is what its answer says."""

import json
import time
from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance, unsupported_method
from support.console import ConsoleApi
from support.eventually import eventually
from support.scheduler import RunningScheduler, at


def body(to: str, **more: object) -> dict[str, object]:
    return {"deliverTo": to, "deliverAt": at(3600), "key": "k", "value": "v", **more}


def test_create_find_replace_reschedule_cancel(console: ConsoleApi, orders: str) -> None:
    made = console.send("POST", "/schedules", body(orders, id="api/1 ü", value={"n": 1}))
    assert made["outcome"] == "pending"
    assert console.ids(idPrefix="api/1") == ["api/1 ü"]
    shown = console.get("/schedule", id="api/1 ü")
    assert (shown["schedule"]["state"], shown["value"]["text"]) == ("pending", '{"n": 1}')
    assert shown["source"] == made["source"]

    same = console.send("PUT", "/schedule", body(orders, value="other"), id="api/1 ü")
    assert same["outcome"] == "pending"
    assert console.get("/schedule", id="api/1 ü")["value"]["text"] == "other"

    moved = console.send(
        "POST", "/schedule/reschedule", {"deliverAt": "2030-01-01T00:00:00Z"}, id="api/1 ü"
    )
    assert moved["outcome"] == "pending"
    shown = console.get("/schedule", id="api/1 ü")
    assert shown["schedule"]["due"] == "2030-01-01T00:00:00.000Z"
    assert (shown["value"]["text"], shown["key"]["text"]) == ("other", "k")
    again = console.send(
        "POST", "/schedule/reschedule", {"deliverAt": "2030-01-01T00:00:00Z"}, id="api/1 ü"
    )
    assert again["outcome"] == "unchanged"

    assert console.send("DELETE", "/schedule", id="api/1 ü")["outcome"] == "cancelled"
    assert console.ids(idPrefix="api/1") == []
    assert console.ask("DELETE", "/api/v1/schedule?id=api%2F1+%C3%BC").status == 404


def test_a_rejection_is_told_and_can_be_repaired(console: ConsoleApi, orders: str) -> None:
    answer = console.ask(
        "POST", "/api/v1/schedules?wait=30", body("no topic", deliverAt="soon", id="api-2")
    )
    assert (answer.status, answer.body["outcome"]) == (422, "rejected")
    assert answer.body["codes"] == ["invalid-deliver-to", "invalid-deliver-at"]

    def rejection() -> Any:
        found = console.get("/rejections", idPrefix="api-2")["rejections"]
        return found[0] if found else None

    found = eventually(rejection, 10)
    headers = [
        {"name": "mine", "value": "kept"},
        {"name": "x-scheduler-deliver-to", "value": orders},
        {"name": "x-scheduler-deliver-at", "value": at(3600)},
        {"name": "x-scheduler-request-id", "value": "api-2"},
    ]
    where = f"/rejections/{found['partition']}/{found['offset']}"
    assert console.send("POST", f"{where}/resend", {"headers": headers})["outcome"] == "pending"
    shown = console.get("/schedule", id="api-2")
    assert shown["value"]["text"] == "v"
    assert shown["headers"][0]["name"] == "mine"
    in_use = console.ask("POST", "/api/v1/schedules?wait=30", body(orders, id="api-2", value="x"))
    assert in_use.body["codes"] == ["request-id-in-use"]


def test_a_notification_is_delivered_at_once_and_run_now_too(
    console: ConsoleApi, scheduler: RunningScheduler
) -> None:
    topic = scheduler.new_destination("now")
    note = {"deliverTo": topic, "deliverAt": None, "key": "a", "value": {"n": 1}}
    assert console.send("POST", "/schedules", note)["outcome"] == "delivered"
    made = body(topic, id="api-3", key="b", valueEncoding="base64", value="/w==")
    assert console.send("POST", "/schedules", made)["outcome"] == "pending"
    assert console.send("POST", "/schedule/run-now", id="api-3")["outcome"] == "delivered"
    assert console.ids(idPrefix="api-3") == []
    records = {record.key: record.value for record in scheduler.delivered(topic, 2)}
    assert records == {b"a": b'{"n": 1}', b"b": b"\xff"}


def test_what_recurs_tells_its_next_fires(console: ConsoleApi, orders: str) -> None:
    made = {"deliverTo": orders, "cron": "0 9 * * *", "timezone": "Europe/Berlin", "id": "api-4"}
    assert console.send("POST", "/schedules", {**made, "key": "k"})["outcome"] == "pending"
    (found,) = eventually(
        lambda: console.get("/schedules", recurring="true", idPrefix="api-4")["schedules"], 10
    )
    assert len(found["nextFires"]) == 3
    assert all(fire[11:13] in ("07", "08") for fire in found["nextFires"])
    assert console.send("DELETE", "/schedule", id="api-4")["outcome"] == "cancelled"


def test_pause_and_resume(console: ConsoleApi, scheduler: RunningScheduler) -> None:
    topic = scheduler.new_destination("paused")
    console.send("POST", "/schedules", body(topic, id="api-6", deliverAt="2031-01-01T00:00:00Z"))
    assert console.send("POST", "/schedule/pause", id="api-6")["outcome"] == "paused"
    assert console.send("POST", "/schedule/pause", id="api-6")["outcome"] == "unchanged"
    (held,) = console.get("/schedules", idPrefix="api-6", paused="true")["schedules"]
    assert (held["state"], held["paused"]) == ("paused", True)
    assert held["due"] == "2031-01-01T00:00:00.000Z"
    assert console.send("POST", "/schedule/resume", id="api-6")["outcome"] == "resumed"
    found = console.get("/schedule", id="api-6")
    assert (found["schedule"]["paused"], found["schedule"]["due"]) == (False, held["due"])

    def story() -> list[str]:
        return [event["event"] for event in console.get("/schedule", id="api-6")["story"]]

    eventually(lambda: story() == ["Scheduled", "Paused", "Unchanged", "Resumed"], 30, story)

    assert console.send("POST", "/schedule/pause", id="api-6")["outcome"] == "paused"
    assert console.send("POST", "/schedule/run-now", id="api-6")["outcome"] == "delivered"
    assert [record.value for record in scheduler.delivered(topic, 1)] == [b"v"]
    assert console.ask("POST", "/api/v1/schedule/resume?id=api-6").status == 404


def test_another_time_ends_a_pause_and_what_recurs_stays_paused(
    console: ConsoleApi, scheduler: RunningScheduler
) -> None:
    topic = scheduler.new_destination("moved")
    console.send("POST", "/schedules", body(topic, id="api-7"))
    console.send("POST", "/schedule/pause", id="api-7")
    later = {"deliverAt": "2031-01-01T00:00:00Z"}
    assert console.send("POST", "/schedule/reschedule", later, id="api-7")["outcome"] == "pending"
    assert console.ids(idPrefix="api-7", paused="false") == ["api-7"]

    yearly = {"deliverTo": topic, "cron": "0 0 1 1 *", "id": "api-8", "key": "k", "value": "v"}
    console.send("POST", "/schedules", yearly)
    assert console.send("POST", "/schedule/pause", id="api-8")["outcome"] == "paused"
    assert console.send("POST", "/schedule/run-now", id="api-8")["outcome"] == "delivered"
    assert len(scheduler.delivered(topic, 1)) == 1
    (held,) = console.get("/schedules", idPrefix="api-8", paused="true")["schedules"]
    assert len(held["nextFires"]) == 3
    assert console.send("DELETE", "/schedule", id="api-8")["outcome"] == "cancelled"


def test_the_view_is_never_far_behind(console: ConsoleApi, scheduler: RunningScheduler) -> None:
    began = time.monotonic()
    scheduler.request(
        {"deliver-to": "somewhere", "deliver-at": at(3600), "request-id": "api-5"}, key=b"k"
    )
    eventually(lambda: console.ids(idPrefix="api-5"), 20, interval=0.02)
    print(f"from request to view: {1000 * (time.monotonic() - began):.0f} ms")


def test_the_overview_shows_the_parts(console: ConsoleApi) -> None:
    def parts() -> Any:
        return [(p["name"], p["ready"]) for p in console.get("/overview")["parts"]]

    eventually(lambda: parts() == [("intake", True), ("dispatcher", True)], 20, parts)
    eventually(lambda: console.get("/overview")["delivery"] is not None, 20)


def test_the_api_is_as_it_describes_itself(console: ConsoleApi) -> None:
    """Random requests to every operation: no answer that the description does not know."""
    load_all_checks()
    description = json.loads(console.ask("GET", "/api/v1/openapi.json").text)
    api = schemathesis.openapi.from_dict(description)
    operations = [result.ok() for result in api.get_all_operations()]
    assert len(operations) > 15

    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            _try(operation, mode, console.url)


def _try(operation: Any, mode: GenerationMode, url: str) -> None:
    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        if case.method != "GET" and mode is GenerationMode.POSITIVE:
            case.query["wait"] = 0
        # what is not there is not found, though it was asked for well
        case.call_and_validate(
            base_url=url, excluded_checks=[positive_data_acceptance, unsupported_method]
        )

    with suppress(Unsatisfiable):  # where nothing is asked, nothing can be asked wrongly
        holds()
