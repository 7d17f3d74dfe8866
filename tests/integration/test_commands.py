"""The program `punctual` as a person meets it, on a real broker."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from punctual_worker.contract.topics import TopicNames
from punctual_worker.local.broker import EmbeddedBroker
from support.kafka import Record, consume_committed, create_topic, produce

Run = Callable[..., subprocess.CompletedProcess[str]]
PUNCTUAL = [sys.executable, "-m", "punctual_worker.cli"]


@pytest.fixture
def run(broker: EmbeddedBroker, app_id: str) -> Run:
    environment = {
        **os.environ,
        "PUNCTUAL_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "PUNCTUAL_APP_ID": app_id,
    }

    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PUNCTUAL, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **more,  # type: ignore[call-overload]
        )

    return call


def test_topics_are_made_checked_repaired_and_refused(run: Run, app_id: str) -> None:
    assert run("topics", "--check").returncode == 1
    made = run("topics", "--request-partitions", "2", "--action-partitions", "2")
    assert (made.returncode, made.stdout.count(": created (2 partitions")) == (0, 3)
    again = run("topics", "--request-partitions", "2", "--action-partitions", "2")
    assert (again.returncode, again.stdout.count(": unchanged\n")) == (0, 3)

    other = ("--request-partitions", "2", "--action-partitions", "4", "--request-max-bytes", "5000")
    changed = run("topics", *other)
    assert changed.returncode == 1
    assert "requests: repaired: max.message.bytes 1048588 -> 5000" in changed.stdout
    assert "actions: refused: it has 2 partitions and 4 are wanted" in changed.stdout
    report = json.loads(run("topics", *other, "--check", "--json").stdout)
    assert [topic["outcome"] for topic in report] == ["unchanged", "refused", "unchanged"]


def test_a_request_is_produced_as_asked_and_where_it_went_is_told(
    run: Run, broker: EmbeddedBroker, app_id: str
) -> None:
    topic = create_topic(broker.bootstrap_servers, TopicNames(app_id).requests, 2)

    said = run(
        *("schedule", "--to", "reminders", "--in", "30s", "--id", "r1", "--key", "k"),
        *("--header", "a=1", "--header", "a=2", "hello"),
    )
    (record,) = consume_committed(broker.bootstrap_servers, topic, 1)
    assert (record.key, record.value) == (b"k", b"hello")
    assert record.headers[:2] == [("a", b"1"), ("a", b"2")]
    assert record.header("x-scheduler-delay") == b"30s"
    place = f"{topic}/{record.partition}/{record.offset}"
    assert said.stdout == f"ADD id r1 to reminders in 30s: requested, {place}\n"

    replaced = run(
        *("replace", "--to", "t", "--at", "2030-01-01T00:00", "--id", "r1", "--key", "k"),
        *("--json", "-"),
        input="from stdin",
    )
    assert json.loads(replaced.stdout) == {
        "action": "REPLACE",
        "id": "r1",
        "to": "t",
        "at": "2030-01-01T00:00:00.000Z",
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset + 1,
    }
    recurring = ("--cron", "0 9 * * *", "--timezone", "Europe/Berlin", "--misfire", "all")
    again = run("schedule", "--to", "t", *recurring, "--key", "c", "v")
    assert again.stdout.startswith("ADD to t as 0 9 * * *: requested")
    found = consume_committed(broker.bootstrap_servers, topic, 3)
    (record,) = [one for one in found if one.key == b"c"]
    assert record.header("x-scheduler-cron") == b"0 9 * * *"
    assert record.header("x-scheduler-timezone") == b"Europe/Berlin"
    assert record.header("x-scheduler-misfire") == b"all"
    assert run("pause", "r1", "--key", "k").stdout.startswith("PAUSE id r1: requested")
    assert run("resume", "r1", "--key", "k").stdout.startswith("RESUME id r1: requested")
    assert run("cancel", "--id", "r1", "--key", "k").stdout.startswith("CANCEL id r1: requested")
    for unclear in (("cancel",), ("pause", "r1", "--id", "r2")):
        refused = run(*unclear)
        assert refused.returncode != 0
        assert "exactly one of ID and --id ID is wanted" in refused.stderr
    found = consume_committed(broker.bootstrap_servers, topic, 6)
    values = [one.value for one in found if one.key == b"k"]
    assert values == [b"hello", b"from stdin", None, None, None]


def test_a_request_without_a_key_is_explained(
    run: Run, broker: EmbeddedBroker, app_id: str
) -> None:
    compacted = {"cleanup.policy": "compact"}
    create_topic(broker.bootstrap_servers, TopicNames(app_id).requests, config=compacted)

    done = run("schedule", "--to", "t", "--in", "1s", "v")

    assert done.returncode == 2
    assert "does not take a request without a key" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("schedule", "--to", "t", "--in", "1s", "v"), "There is no topic "),
        (("schedule", "--to", "t", "v"), "one of --at TIME, --in DURATION and --cron"),
        (("schedule", "--to", "t", "--in", "1s", "--misfire", "all", "v"), "are for --cron"),
        (("schedule", "--to", "t", "--in", "soon", "v"), "--in: 'soon' is not a duration"),
        (("schedule", "--to", "t", "--at", "noon", "v"), "--at: 'noon' is not a time"),
        (("schedule", "--to", "t", "--in", "1s"), "exactly one of VALUE"),
        (("schedule", "--to", "t", "--in", "1s", "--header", "x", "v"), "want NAME=VALUE"),
        (("watch",), "There is no topic "),
        (("topics", "--app-id", "no spaces"), "app-id: "),
        (("topics", "--kafka", "sasl.password=p"), "PUNCTUAL_KAFKA_SASL_PASSWORD"),
        (("topics", "--config", "missing.yaml"), "missing.yaml: cannot be read"),
    ],
)
def test_what_is_wrong_is_one_sentence(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    done = run(*arguments)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_watch_shows_rejections_and_history(run: Run, broker: EmbeddedBroker, app_id: str) -> None:
    names = TopicNames(app_id)
    create_topic(broker.bootstrap_servers, names.rejections)
    rejected = Record(
        b"\xff",
        b"k",
        [
            ("x-scheduler-request-id", b"r1"),
            ("x-scheduler-error-code", b"invalid-delay,missing-deliver-to"),
            ("x-scheduler-error", b"what is wrong"),
            ("x-scheduler-source", b"q/0/7"),
            ("x-scheduler-rejected-at", b"2026-11-18T20:00:00.000Z"),
        ],
    )
    produce(broker.bootstrap_servers, names.rejections, [rejected])

    readable = run("watch", "--from-beginning", "--count", "1").stdout
    assert readable == (
        "2026-11-18T20:00:00.000Z Rejected     id r1 key k from q/0/7 "
        "[invalid-delay, missing-deliver-to] what is wrong\n"
    )
    create_topic(broker.bootstrap_servers, names.history)
    delivered = {"event": "Delivered", "id": "r2", "latenessMs": 3, "destination": "t", "at": "now"}
    produce(broker.bootstrap_servers, names.history, [Record(json.dumps(delivered).encode())])
    lines = run("watch", "--from-beginning", "--count", "2", "--json").stdout.splitlines()
    events = {event["event"]: event for event in map(json.loads, lines)}
    assert events["Rejected"]["codes"] == ["invalid-delay", "missing-deliver-to"]
    assert events["Rejected"]["value"] == {"base64": "/w=="}
    assert events["Delivered"] == delivered


def test_the_broker_command_says_ready_and_ends_on_sigterm(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PUNCTUAL, "broker", "--port", "0", "--data-dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0

    assert lines[0].startswith("Kafka listens on 127.0.0.1:")
    assert lines[2] == "ready\n"


def test_help_does_not_load_spark_or_rocksdb() -> None:
    program = (
        "import sys, punctual_worker.cli, punctual_worker.client\n"
        "print([m for m in ('pyspark', 'rocksdict') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
