"""The console's view on a real broker, fed with actions as intake and dispatcher write them."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from punctual_worker.console.main import ConsoleError, running
from punctual_worker.contract.actions import NEVER_MS, Plan, Verb, action_headers
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.settings import Settings
from support.actions import ActionLog, now_ms
from support.console import ConsoleApi
from support.eventually import eventually
from support.kafka import Record, produce

NewConsole = Callable[..., ConsoleApi]
LATER = 3_600_000


@pytest.fixture
def log(broker: EmbeddedBroker, app_id: str) -> ActionLog:
    return ActionLog(broker.bootstrap_servers, app_id, history=True)


@pytest.fixture
def new_console(
    broker: EmbeddedBroker, app_id: str, tmp_path: Path
) -> Iterator[Callable[..., ConsoleApi]]:
    with ExitStack() as undo:

        def new(stack: ExitStack = undo, **settings: object) -> ConsoleApi:
            given = {"data_dir": tmp_path, "http_port": 0, **settings}
            made = Settings(
                bootstrap_servers=broker.bootstrap_servers,
                app_id=app_id,
                **given,  # type: ignore[arg-type]
            )
            api = ConsoleApi(stack.enter_context(running(made)))
            api.wait_ready()
            return api

        yield new


def write(log: ActionLog, *records: Record) -> list[Record]:
    return produce(log.bootstrap_servers, log.topics.actions, records)


def tombstone(record: Record, due_ms: int) -> Record:
    return Record(
        value=None,
        key=record.key,
        headers=[("x-scheduler-due", str(due_ms).encode())],
        partition=record.partition,
    )


def commit_checkpoint(log: ActionLog, partition: int, *, position: int, cursor: bytes) -> None:
    """As the dispatcher does, though outside a transaction."""
    from confluent_kafka import Consumer, TopicPartition

    state = checkpoints.Checkpoint(position=position, cursor=cursor)
    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap_servers,
            "group.id": f"{log.topics.app_id}-dispatcher",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    place = TopicPartition(
        log.topics.actions, partition, position, metadata=checkpoints.encode(state)
    )
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def test_the_view_follows_the_log_within_a_second(log: ActionLog, new_console: NewConsole) -> None:
    due = now_ms() + LATER
    first = log.record(to="orders", due_ms=due, request_id="before")
    write(log, first)
    console = new_console()
    assert console.ids() == ["before"]
    assert console.get("/schedules")["schedules"][0]["state"] == "accepted"

    second = log.record(to="orders", due_ms=due + 1, request_id="after", value=b'{"a": 1}')
    write(log, second)
    eventually(lambda: console.ids() == ["before", "after"], 5, interval=0.05)
    write(log, tombstone(first, due))
    eventually(lambda: console.ids() == ["after"], 5, interval=0.05)

    shown = console.get("/schedule", id="after")
    assert shown["value"] == {"encoding": "json", "text": '{"a": 1}', "size": 8, "truncated": False}
    assert shown["key"]["text"] == "key"
    assert console.get("/status")["behindRecords"] == 0


def test_what_has_fired_is_hidden_before_its_tombstone_comes(
    log: ActionLog, new_console: NewConsole
) -> None:
    due = now_ms()
    fired, waiting, unread = (
        log.record(to="orders", due_ms=due + n, request_id="same", headers=[]) for n in range(3)
    )
    placed = write(log, fired, waiting, unread)
    console = new_console()
    assert len(console.ids()) == 3
    commit_checkpoint(
        log,
        fired.partition,
        position=placed[1].offset + 1,
        cursor=due.to_bytes(8, "big") + (fired.key or b""),
    )
    eventually(lambda: len(console.ids()) == 2, 10)
    states = [each["state"] for each in console.get("/schedules")["schedules"]]
    assert states == ["pending", "accepted"]


def test_what_is_paused_is_due_at_no_time(log: ActionLog, new_console: NewConsole) -> None:
    due = now_ms() - LATER
    record = log.record(to="t", due_ms=due, request_id="held")
    plan = Plan(Verb.ADD, NEVER_MS, "t", "held", scheduled_for_ms=due).pause()
    headers = action_headers([], b"key", plan)
    write(
        log,
        replace(record, key=(record.key or b"") + b"#1", headers=headers),
        log.record(to="t", due_ms=now_ms() + LATER, request_id="waits"),
    )
    console = new_console()
    (held,) = console.get("/schedules", paused="true")["schedules"]
    assert (held["state"], held["paused"], held["dueMs"]) == ("paused", True, due)
    assert held["due"] == held["scheduledFor"]
    assert console.ids(paused="false") == ["waits"]
    assert console.ids(paused="true", dueTo="0s") == ["held"]
    assert console.ids(dueTo="0s") == []
    shown = console.get("/schedule", id="held")["schedule"]
    assert shown == held
    figures = console.get("/overview")
    assert (figures["pending"], figures["paused"], figures["overdue"]) == (2, 1, 0)
    assert figures["dueNextDay"] == 1
    for path in ("/pending?paused=yes", "/schedule?id=held", "/"):
        answer = console.ask("GET", path)
        assert answer.status == 200, answer
        assert "9999-12-31" not in answer.text
    assert "Resume" in console.ask("GET", "/schedule?id=held").text


def test_a_restart_goes_on_where_it_was_and_a_lost_copy_is_read_again(
    log: ActionLog, new_console: NewConsole, tmp_path: Path
) -> None:
    due = now_ms() + LATER
    write(log, *(log.record(to="t", due_ms=due + n, request_id=f"id-{n}") for n in range(50)))
    with ExitStack() as first:
        console = new_console(first)
        assert console.get("/schedules/count") == {"count": 50, "exact": True}
    with ExitStack() as second:
        console = new_console(second)
        assert console.get("/schedules/count")["count"] == 50
        read = [
            line for line in console.ask("GET", "/metrics").text.splitlines() if "_read " in line
        ]
        assert read[-1].endswith(" 0.0"), "nothing was read a second time"
    (database,) = tmp_path.glob("console/*/view.db")
    database.write_bytes(b"damaged" * 1000)
    console = new_console()
    assert console.get("/schedules/count")["count"] == 50
    page = console.get("/schedules", limit=20, sort="-due")
    rest = console.get("/schedules", limit=100, sort="-due", cursor=page["nextCursor"])
    ids = [each["id"] for each in page["schedules"] + rest["schedules"]]
    assert ids == [f"id-{n}" for n in reversed(range(50))]


def test_rejections_and_history_are_shown(log: ActionLog, new_console: NewConsole) -> None:
    due = now_ms() + LATER
    write(log, log.record(to="t", due_ms=due, request_id="told"))
    event = {"event": "Scheduled", "id": "told", "at": "2026-11-18T20:00:00.000Z"}
    history = Record(value=json.dumps(event).encode(), key=b"told")
    produce(log.bootstrap_servers, log.topics.history, [history])
    headers = [
        ("x-scheduler-request-id", b"bad"),
        ("x-scheduler-error-code", b"invalid-delay,unknown-header"),
        ("x-scheduler-error", b"x-scheduler-delay is 'x': want a duration."),
    ]
    (placed,) = produce(
        log.bootstrap_servers,
        log.topics.rejections,
        [Record(value=b"\xff", key=b"k", headers=headers)],
    )
    console = new_console()
    assert [each["event"] for each in console.get("/schedule", id="told")["story"]] == ["Scheduled"]
    assert [each["event"] for each in console.get("/story", id="told")["events"]] == ["Scheduled"]
    story = console.get("/story", id="bad")
    assert story["rejections"] == console.get("/rejections", code="invalid-delay")["rejections"]
    gone = console.ask("GET", "/schedule?id=bad")
    assert gone.status == 404
    assert "want a duration" in gone.text, "why it did not arrive"
    (rejection,) = console.get("/rejections", code="unknown-header")["rejections"]
    assert rejection["codes"] == ["invalid-delay", "unknown-header"]
    full = console.get(f"/rejections/{placed.partition}/{placed.offset}")
    assert full["value"] == {"encoding": "base64", "text": "/w==", "size": 1, "truncated": False}
    assert console.ask("GET", f"/api/v1/rejections/{placed.partition}/999").status == 404


def test_hidden_payloads_are_nowhere(log: ActionLog, new_console: NewConsole) -> None:
    record = log.record(
        to="t", due_ms=now_ms() + LATER, request_id="x", value=b"top-secret", key=b"top-secret"
    )
    write(log, record)
    console = new_console(console_hide_payloads=True)
    for path in ("/api/v1/schedule?id=x", "/schedule?id=x", "/pending"):
        answer = console.ask("GET", path)
        assert answer.status == 200, answer
        assert "top-secret" not in answer.text


def test_a_write_is_answered_though_nobody_takes_it_in(
    log: ActionLog, new_console: NewConsole
) -> None:
    console = new_console()
    body = {"deliverTo": "t", "key": "k", "value": "v", "id": "x"}
    answer = console.ask("POST", "/api/v1/schedules?wait=0.2", body)
    assert (answer.status, answer.body["outcome"]) == (202, "requested")
    answer = console.ask("POST", "/api/v1/schedules?wait=0.2", {**body, "key": None})
    assert answer.status == 409
    assert "give it a key" in answer.body["detail"]


def test_safety(log: ActionLog, new_console: NewConsole) -> None:
    console = new_console(console_token="a-long-enough-token", console_writes_per_second=2)
    assert console.ask("GET", "/livez").status == 200
    refused = console.ask("GET", "/api/v1/schedules")
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert console.ask("GET", "/pending").headers["location"] == "/login?next=/pending"
    console.headers["authorization"] = "Bearer a-long-enough-token"
    page = console.ask("GET", "/pending")
    assert page.status == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    body = {"deliverTo": "t", "key": "k", "value": "v"}
    path = "/api/v1/schedules?wait=0"
    assert console.ask("POST", path, body, origin="http://evil.example").status == 403
    text = console.ask("POST", path, raw=json.dumps(body).encode(), content_type="text/plain")
    assert text.status == 422, "a form of another site can send no more than text"
    # announced, not sent: a server that answers early would break off a client that still writes
    assert console.ask("POST", path, raw=b"", content_length="3000000").status == 413
    form = console.ask("POST", "/schedule/cancel", raw=b"id=x")
    assert form.status == 403, "a form without its token"
    statuses = {console.ask("POST", path, body).status for _ in range(10)}
    assert statuses == {202, 429}


def test_read_only_changes_nothing(log: ActionLog, new_console: NewConsole) -> None:
    console = new_console(console_read_only=True)
    answer = console.ask("POST", "/api/v1/schedules", {"deliverTo": "t"})
    assert answer.status == 403
    assert "Create" not in console.ask("GET", "/pending").text


def test_two_consoles_do_not_share_a_directory(log: ActionLog, new_console: NewConsole) -> None:
    new_console()
    with pytest.raises(ConsoleError, match="in use by another console"):
        new_console()


def test_bulk_deals_with_exactly_what_the_dry_run_found(
    log: ActionLog, new_console: NewConsole, broker: EmbeddedBroker
) -> None:
    from support.kafka import consume_committed

    due = now_ms() + LATER
    records = [
        log.record(to="t", due_ms=due + n, request_id=f"a-{n}", key=b"k%d" % n) for n in range(30)
    ]
    write(
        log,
        *records,
        log.record(to="t", due_ms=due),
        log.record(to="t", due_ms=due, request_id="b"),
    )
    console = new_console()
    job = console.ask(
        "POST", "/api/v1/bulk", {"verb": "cancel", "filters": {"idPrefix": "a-"}}
    ).body
    assert (job["count"], job["state"]) == (30, "planned")
    write(log, tombstone(records[3], due + 3))
    eventually(lambda: console.get("/schedules/count")["count"] == 31, 10)
    wrong = console.ask("POST", f"/api/v1/bulk/{job['token']}/confirm", {"count": 29})
    assert wrong.status == 409
    started = console.ask("POST", f"/api/v1/bulk/{job['token']}/confirm", {"count": 30})
    assert started.status == 200
    done = eventually(
        lambda: (found := console.get(f"/bulk/{job['token']}"))["state"] == "done" and found, 20
    )
    assert (done["sent"], done["gone"]) == (29, 1)
    requests = consume_committed(broker.bootstrap_servers, log.topics.requests, 29)
    assert {r.header("x-scheduler-action") for r in requests} == {b"CANCEL"}
    assert {(r.key, r.header("x-scheduler-request-id")) for r in requests} == {
        (b"k%d" % n, b"a-%d" % n) for n in range(30) if n != 3
    }

    shift = {"verb": "reschedule", "filters": {"destination": "t"}, "shift": "1h"}
    job = console.ask("POST", "/api/v1/bulk", shift).body
    assert (job["count"], job["skipped"]) == (30, 1), "one has no id"
    console.ask("POST", f"/api/v1/bulk/{job['token']}/confirm", {"count": 30})
    requests = consume_committed(broker.bootstrap_servers, log.topics.requests, 59)
    moved = [r for r in requests if r.header("x-scheduler-action") == b"REPLACE"]
    assert len(moved) == 30
    assert {r.value for r in moved} == {b"value"}

    job = console.ask("POST", "/api/v1/bulk", {"verb": "pause", "filters": {"idPrefix": "b"}}).body
    assert (job["count"], job["skipped"]) == (1, 0)
    console.ask("POST", f"/api/v1/bulk/{job['token']}/confirm", {"count": 1})
    requests = consume_committed(broker.bootstrap_servers, log.topics.requests, 60)
    (pause,) = [r for r in requests if r.header("x-scheduler-action") == b"PAUSE"]
    assert (pause.key, pause.header("x-scheduler-request-id")) == (b"key", b"b")


def test_it_goes_on_after_the_broker_was_away(tmp_path: Path, app_id: str) -> None:
    with EmbeddedBroker(tmp_path / "own-broker") as broker:
        log = ActionLog(broker.bootstrap_servers, app_id)
        due = now_ms() + LATER
        write(log, log.record(to="t", due_ms=due, request_id="before"))
        settings = Settings(
            bootstrap_servers=broker.bootstrap_servers,
            app_id=app_id,
            data_dir=tmp_path,
            http_port=0,
        )
        with running(settings) as url:
            console = ConsoleApi(url)
            console.wait_ready()
            broker.kill()
            eventually(lambda: console.ask("GET", "/readyz").status == 503, 30)
            assert console.ids() == ["before"], "what is known is still shown"
            assert console.get("/status")["trouble"]
            broker.start()
            write(log, log.record(to="t", due_ms=due + 1, request_id="after"))
            eventually(lambda: console.ids() == ["before", "after"], 40)
            eventually(lambda: console.ask("GET", "/readyz").status == 200, 30)
