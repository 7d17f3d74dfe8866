"""`punctual up`: everything starts, serves, survives and ends together."""

import signal
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from punctual_worker.client import Client, cancel_request, delivery_request
from punctual_worker.settings import Settings
from support.eventually import eventually
from support.kafka import consume_committed, create_topic
from support.up import RunningUp, running_up

SMALL = ("--request-partitions", "2", "--action-partitions", "2")


def client(up: RunningUp, app_id: str) -> Client:
    return Client(Settings(bootstrap_servers=up.bootstrap_servers, app_id=app_id))


def values(up: RunningUp, topic: str, count: int, *, settle: float = 0) -> list[bytes | None]:
    got = consume_committed(up.bootstrap_servers, topic, count, timeout=60, settle=settle)
    return [record.value for record in got]


def test_it_delivers_over_stops_and_kills_and_leaves_nothing_behind(
    tmp_path: Path, app_id: str
) -> None:
    with running_up(tmp_path, app_id, SMALL) as up:
        create_topic(up.bootstrap_servers, "out")
        down_due = datetime.now(UTC) + timedelta(seconds=20)
        with client(up, app_id) as requests:
            requests.send(delivery_request("out", b"now", delay="0s", key=b"k"))
            requests.send(delivery_request("out", b"due while down", deliver_at=down_due, key=b"d"))
            requests.send(delivery_request("out", b"later", delay="1h", request_id="l", key=b"l"))
        assert values(up, "out", 1) == [b"now"]
        with urllib.request.urlopen(f"{up.url}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        assert 'part="intake"' in metrics
        assert 'part="dispatcher"' in metrics
        below = up.descendants()
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(60) == 0
        assert datetime.now(UTC) < down_due, "it ended too late for this test to mean anything"
    # dead already; grandchildren are reaped by init, a moment later
    assert not psutil.wait_procs(below, timeout=10)[1]
    eventually(lambda: datetime.now(UTC) > down_due, 30, "the second message is due")

    with running_up(tmp_path, app_id, SMALL) as up:
        assert values(up, "out", 2) == [b"now", b"due while down"]
        with client(up, app_id) as requests:
            requests.send(cancel_request("l", key=b"l"))
            requests.send(delivery_request("out", b"again", delay="0s", key=b"l"))
        for part in [up.part("dispatcher"), up.part("intake")]:
            part.kill()
        got = values(up, "out", 3, settle=1)
        assert got == [b"now", b"due while down", b"again"]
        below = up.descendants()
        up.process.kill()
        up.process.wait()
    _, alive = psutil.wait_procs(below, timeout=20)
    assert not alive


def test_a_kafka_that_is_there_is_used(broker: object, tmp_path: Path, app_id: str) -> None:
    servers = broker.bootstrap_servers  # type: ignore[attr-defined]
    with running_up(tmp_path, app_id, ("--bootstrap-servers", servers, *SMALL)) as up:
        assert not (tmp_path / "broker").exists()
        assert not [line for line in up.lines if "Kafka listens" in line]
