"""Topics of other schedulers beside our own, through real intake and dispatcher, all at once.

What was pending there is moved over; producers go on as before; consumers get what they know.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from punctual_worker.local.broker import EmbeddedBroker
from support import dialects
from support.eventually import eventually
from support.kafka import Record, consume_committed, create_topic, produce
from support.scheduler import RunningScheduler

pytestmark = pytest.mark.timeout(600)
HOUR_S = 3600
COMPACTED = {"cleanup.policy": "compact"}


class Old:
    """Topics of the other schedulers, with what they have left behind."""

    def __init__(self, servers: str, app_id: str) -> None:
        self._servers = servers
        self.etf1, self.karafka, self.json, self.avro, self.kaspr = (
            create_topic(servers, f"{app_id}-{name}", config=COMPACTED)
            for name in ("etf1", "karafka.messages", "kms-json", "kms-avro", "kaspr")
        )
        self.out = create_topic(servers, f"{app_id}-out", 2)

    @property
    def sources(self) -> str:
        named = {
            self.etf1: "kafka-message-scheduler",
            self.karafka: "karafka",
            self.json: "kms-json",
            self.avro: "kms-avro",
            self.kaspr: "native",
        }
        return ",".join(f"{topic}={dialect}" for topic, dialect in named.items())

    def send(self, topic: str, *records: Record) -> list[Record]:
        return produce(self._servers, topic, records)

    def etf1_record(self, name: str, *, epoch: int, value: bytes | None = b"v") -> Record:
        return dialects.etf1(name.encode(), value, epoch=epoch, topic=self.out, key=f"key-{name}")


@pytest.fixture(scope="module")
def old(broker: EmbeddedBroker) -> Old:
    return Old(broker.bootstrap_servers, f"dialects-{time.time_ns()}")


@pytest.fixture(scope="module")
def pending(old: Old) -> int:
    """What the old scheduler left in its log; the second when two of them fall due."""
    past, soon = int(time.time()) - HOUR_S, int(time.time()) + 20
    old.send(
        old.etf1,
        old.etf1_record("delivered-long-ago", epoch=past),
        old.etf1_record("delivered-long-ago", epoch=past, value=None),
        old.etf1_record("replaced", epoch=past, value=b"before"),
        old.etf1_record("replaced", epoch=soon, value=b"after"),
        old.etf1_record("overdue", epoch=past),
        old.etf1_record("cancelled", epoch=soon),
        Record(None, key=b"cancelled"),
        old.etf1_record("repaired in vain", epoch=past),
        dialects.etf1(b"repaired in vain", b"v", epoch="never", topic=old.out),
    )
    return soon


@pytest.fixture(scope="module")
def scheduler(
    broker: EmbeddedBroker,
    old: Old,
    pending: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningScheduler]:
    running = RunningScheduler(
        broker.bootstrap_servers,
        f"new-{time.time_ns()}",
        tmp_path_factory.mktemp("dialects"),
        sources=old.sources,
    )
    try:
        running.start()
        yield running
    finally:
        running.stop()


def delivered(scheduler: RunningScheduler, old: Old, *keys: bytes) -> dict[bytes, Record]:
    """What stands in the destination under these keys, each once, once all are there."""

    def there(records: list[Record]) -> bool:
        return set(keys) <= {record.key for record in records}

    found = consume_committed(
        scheduler.bootstrap_servers, old.out, until=there, timeout=90, settle=0.5
    )
    by_key = {record.key: record for record in found if record.key in keys}
    assert len([record for record in found if record.key in keys]) == len(keys)
    return {key: by_key[key] for key in keys}


def test_what_is_pending_is_moved_over_and_what_is_over_stays_over(
    scheduler: RunningScheduler, old: Old, pending: int
) -> None:
    keys = (b"key-overdue", b"key-replaced", b"key-repaired in vain")
    found = delivered(scheduler, old, *keys)
    assert found[b"key-replaced"].value == b"after"
    assert found[b"key-replaced"].timestamp_ms >= pending * 1000
    everything = consume_committed(scheduler.bootstrap_servers, old.out)
    assert {record.key for record in everything} >= set(keys)
    assert not {b"key-delivered-long-ago", b"key-cancelled"} & {r.key for r in everything}


def test_consumers_get_what_they_know(scheduler: RunningScheduler, old: Old) -> None:
    due = int(time.time()) + 1
    (etf1,) = old.send(
        old.etf1, dialects.etf1(b"e", b"1", epoch=due, topic=old.out, key="etf1-key")
    )
    (karafka,) = old.send(
        old.karafka,
        dialects.karafka(b"k", b"2", epoch=due, topic=old.out, key="karafka-key", partition=1),
    )
    headers = {"a": b"\xff", "b": b""}
    kms = {"time_ms": due * 1000, "topic": old.out, "headers": headers}
    old.send(old.json, dialects.kms_json(b"j", None, key=b"json-key", **kms))
    old.send(old.avro, dialects.kms_avro(b"a", b"\x00", key=b"avro-key", **kms))
    native = [
        ("x-scheduler-deliver-to", old.out.encode()),
        ("x-scheduler-delay", b"1s"),
        ("x-scheduler-action", b"ADD"),
    ]
    (kaspr,) = old.send(old.kaspr, Record(b"{}", key=b"kaspr-key", headers=native))
    own = scheduler.request({"deliver-to": old.out, "delay": "1s"}, key=b"own-key")

    found = delivered(
        *(scheduler, old, b"etf1-key", b"karafka-key", b"json-key", b"avro-key"),
        *(b"kaspr-key", b"own-key"),
    )
    assert found[b"etf1-key"].headers == [
        *etf1.headers,
        ("scheduler-timestamp", str(etf1.timestamp_ms // 1000).encode()),
        ("scheduler-key", b"e"),
        ("scheduler-topic", old.etf1.encode()),
    ]
    assert found[b"karafka-key"].headers == [
        *karafka.headers,
        ("schedule_source_topic", old.karafka.encode()),
        ("schedule_source_partition", b"0"),
        ("schedule_source_offset", str(karafka.offset).encode()),
        ("schedule_source_key", b"k"),
    ]
    assert found[b"karafka-key"].partition == 1
    assert found[b"json-key"].value is None
    assert found[b"avro-key"].value == b"\x00"
    assert dict(found[b"json-key"].headers) == dict(found[b"avro-key"].headers) == headers
    for key, request in ((b"kaspr-key", kaspr), (b"own-key", own)):
        source = f"{request.topic}/{request.partition}/{request.offset}".encode()
        assert found[key].header("x-scheduler-source") == source
    assert all(record.timestamp_ms >= due * 1000 for record in list(found.values())[:4])


def test_a_partition_key_chooses_the_partition_as_karafkas_producer_does(
    scheduler: RunningScheduler, old: Old
) -> None:
    tenants = [f"tenant-{n}" for n in range(6)]
    by_librdkafka = produce(
        scheduler.bootstrap_servers,
        create_topic(scheduler.bootstrap_servers, f"{old.out}-expected", 2),
        [Record(b"", key=tenant.encode()) for tenant in tenants],
        config={"partitioner": "consistent_random"},
    )
    # numbers that are not to count: each names the other partition
    old.send(
        old.karafka,
        *(
            dialects.karafka(
                *(f"placed-{tenant}".encode(), tenant.encode()),
                epoch=1,
                topic=old.out,
                key=f"placed-{tenant}",
                partition=1 - placed.partition,
                partition_key=tenant,
            )
            for tenant, placed in zip(tenants, by_librdkafka, strict=True)
        ),
    )
    found = delivered(scheduler, old, *(f"placed-{tenant}".encode() for tenant in tenants))
    expected = {f"placed-{one.key.decode()}".encode(): one.partition for one in by_librdkafka}
    assert {key: record.partition for key, record in found.items()} == expected
    assert set(expected.values()) == {0, 1}


def test_the_same_key_replaces_and_a_null_value_cancels(
    scheduler: RunningScheduler, old: Old
) -> None:
    later = int(time.time()) + HOUR_S
    kms = {"topic": old.out, "key": b"kms-again"}
    old.send(old.json, dialects.kms_json(b"r", b"1", time_ms=later * 1000, **kms))
    old.send(old.avro, dialects.kms_avro(b"c", b"1", time_ms=later * 1000, **kms))
    old.send(old.karafka, dialects.karafka(b"kc", b"1", epoch=later, topic=old.out, key="kc"))
    sent = [
        *old.send(old.json, dialects.kms_json(b"r", b"2", time_ms=1, **kms)),
        *old.send(old.avro, Record(None, key=b"c")),
        *old.send(old.karafka, dialects.karafka_cancel(b"kc")),
    ]
    scheduler.wait_until_decided(*sent)
    assert delivered(scheduler, old, b"kms-again")[b"kms-again"].value == b"2"
    events = b"".join(
        record.value or b""
        for record in consume_committed(scheduler.bootstrap_servers, scheduler.topics.history)
    ).decode()
    assert events.count('"Cancelled", "id": "c"') == events.count('"Cancelled", "id": "kc"') == 1


def test_what_cannot_be_read_or_delivered_is_rejected(
    scheduler: RunningScheduler, old: Old
) -> None:
    (broken,) = old.send(old.avro, Record(b"not Avro", key=b"broken", headers=[("h", b"1")]))
    rejection = scheduler.rejection_of(broken)
    assert (rejection.key, rejection.value) == (b"broken", b"not Avro")
    assert rejection.headers[0] == ("h", b"1")
    assert rejection.header("x-scheduler-error-code") == b"unknown-action"
    (nowhere,) = old.send(old.etf1, dialects.etf1(b"n", b"v", epoch=1, topic="nowhere"))
    rejection = scheduler.rejection_of(nowhere)
    assert rejection.header("x-scheduler-error-code") == b"unknown-destination"
    # in our own words, so that it can be repaired and produced to our own topic
    repaired = {name: value for name, value in rejection.headers if not name.endswith("deliver-to")}
    again = [*repaired.items(), ("x-scheduler-deliver-to", old.out.encode())]
    produce(
        scheduler.bootstrap_servers,
        scheduler.topics.requests,
        [Record(b"v", key=b"repaired", headers=again)],
    )
    delivered(scheduler, old, b"repaired")


def test_lag_is_told_for_each_topic(scheduler: RunningScheduler, old: Old) -> None:
    def told() -> bool:
        metrics = scheduler.intake.metrics()
        wanted = [f'punctual_intake_lag_records{{partition="{old.karafka}/0"}} 0.0']
        wanted.append('punctual_intake_lag_records{partition="1"} 0.0')
        return all(line in metrics for line in wanted)

    eventually(told, 30, scheduler.intake.log)


def test_the_audit_accounts_for_them(scheduler: RunningScheduler, old: Old, tmp_path: Path) -> None:
    (sent,) = old.send(
        old.json, dialects.kms_json(b"audited", b"", time_ms=1, topic=old.out, key=b"audited")
    )
    scheduler.wait_until_decided(sent)
    delivered(scheduler, old, b"audited")

    def report() -> dict[str, Any]:
        done = run_punctual(
            *("job", "audit", "--json", "--app-id", scheduler.topics.app_id),
            *("--bootstrap-servers", scheduler.bootstrap_servers),
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    found = report()
    assert found["problems"] == {}
    assert found["fates"]["fired, delivery not traced"] >= 1


def run_punctual(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "punctual_worker.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.parametrize("command", ["intake", "topics"])
def test_a_source_that_does_not_exist_is_named(
    scheduler: RunningScheduler, tmp_path: Path, command: str
) -> None:
    done = run_punctual(
        *(command, "--app-id", scheduler.topics.app_id, "--source", "gone=karafka"),
        *("--bootstrap-servers", scheduler.bootstrap_servers),
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "o topic gone, which --source names" in done.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("old", "'old' is given, want TOPIC=DIALECT"),
        ("old=etf2", "kafka-message-scheduler"),
        ("a b=karafka", "not a topic's name"),
        ("x-schedule-actions=karafka", "a topic of this app id itself"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(tmp_path: Path, given: str, told: str) -> None:
    done = run_punctual("intake", "--app-id", "x", "--source", given, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr, done.stderr
