"""Intake on a real broker, in real-time mode: what goes in comes out, whatever it is."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from punctual_worker.contract.actions import decode_plan, split_action_headers
from punctual_worker.local.broker import EmbeddedBroker
from support.eventually import eventually
from support.intake import IntakeProcess
from support.kafka import Record, consume_committed, produce
from support.request_generator import RequestGenerator
from support.request_rules import PREFIX, Request, World, judge

pytestmark = pytest.mark.timeout(600)
GOOD: list[tuple[str, bytes | None]] = [
    (PREFIX + "deliver-to", b"reminders"),
    (PREFIX + "deliver-at", b"2027-01-01T00:00:00Z"),
]


@pytest.fixture(scope="module")
def intake(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IntakeProcess]:
    """One running intake for the tests that do not stop it."""
    process = IntakeProcess(
        broker.bootstrap_servers,
        f"intake-{uuid.uuid4().hex[:8]}",
        data_dir=tmp_path_factory.mktemp("intake"),
    )
    process.make_topics()
    with process:
        yield process


def outcome(intake: IntakeProcess, sent: list[Record]) -> dict[tuple[int, int], Record]:
    """The action or rejection of each request, by the request's place; never both, never two."""
    places = {(record.partition, record.offset) for record in sent}

    def found() -> dict[tuple[int, int], list[Record]]:
        by_place: dict[tuple[int, int], list[Record]] = {}
        for topic in (intake.topics.actions, intake.topics.rejections):
            for record in consume_committed(intake.bootstrap_servers, topic):
                source = record.header(PREFIX + "source") if topic.endswith("rejections") else None
                text = (source or record.key or b"").decode()
                _, partition, offset = text.rsplit("/", 2)
                by_place.setdefault((int(partition), int(offset)), []).append(record)
        return {place: records for place, records in by_place.items() if place in places}

    def all_found() -> dict[tuple[int, int], list[Record]]:
        results = found()
        assert len(results) == len(places), f"{len(results)} of {len(places)}"
        return results

    results = eventually(all_found, 60, intake.log)
    assert all(len(records) == 1 for records in results.values())
    return {place: records[0] for place, records in results.items()}


def test_an_action_keeps_key_value_and_headers_in_their_order(intake: IntakeProcess) -> None:
    headers = [
        ("u", b"1"),
        *GOOD,
        ("u", None),
        ("", b""),
        ("u", b"\xff\x00"),
        (PREFIX + "request-id", b"a|b"),
    ]
    (sent,) = produce(
        intake.bootstrap_servers,
        intake.topics.requests,
        [Record(value=None, key=b"\x00\xff", headers=headers)],
    )
    (action,) = outcome(intake, [sent]).values()
    kept, key, plan = split_action_headers(action.headers)
    assert (kept, key, action.value) == (headers, b"\x00\xff", b"")
    assert decode_plan(plan).request_id == "a|b"
    assert decode_plan(plan).null_value
    assert action.key == f"0/{sent.partition}/{sent.offset}".encode()


def test_arbitrary_requests_come_out_as_the_oracle_says_and_the_stream_goes_on(
    intake: IntakeProcess,
) -> None:
    generator = RequestGenerator(42)
    records = []
    for offset in range(1_000):
        one = generator.request(offset)
        records.append(
            Record(
                value=one.value,
                key=one.key,
                headers=list(one.headers),
                timestamp_ms=max(one.timestamp_ms, 1),
            )
        )
    records.append(Record(value=bytes(4_000_000), key=b"zeros", headers=GOOD))
    sent = produce(
        intake.bootstrap_servers,
        intake.topics.requests,
        records,
        # so that a record arrives that is far larger than what any topic here takes
        config={"compression.type": "gzip", "message.max.bytes": 8_000_000},
    )
    world = World(frozenset(intake.topics.all))
    results = outcome(intake, sent)
    for record in sent:
        request = Request(
            record.partition,
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            tuple(record.headers),
        )
        verdict = judge(request, world)
        result = results[(record.partition, record.offset)]
        codes = result.header(PREFIX + "error-code") if verdict.codes else None
        assert set((codes or b"").decode().split(",")) - {""} == verdict.codes, (request, result)
        if not verdict.codes:
            plan = decode_plan(split_action_headers(result.headers)[2])
            assert str(plan.due_ms) == verdict.plan["due_ms"], (request, plan)
    assert intake.is_ready


def test_rejections_and_lag_are_told_while_a_batch_runs(intake: IntakeProcess) -> None:
    produce(
        intake.bootstrap_servers,
        intake.topics.requests,
        [Record(value=b"v", key=b"k", headers=[*GOOD, (PREFIX + "action", b"NO")])],
    )

    def told() -> bool:
        metrics = intake.get("/metrics").splitlines()
        counts = [m for m in metrics if m.startswith('punctual_rejections_total{code="unknown-act')]
        lags = [m.split()[-1] for m in metrics if m.startswith("punctual_intake_lag_records{")]
        return float(counts[0].split()[-1]) > 0 and lags == ["0.0", "0.0"]

    eventually(told, 30)


@pytest.mark.parametrize("mode", ["real-time", "micro-batch"])
def test_a_restart_without_its_directory_goes_on_from_the_groups_offsets(
    broker: EmbeddedBroker, app_id: str, tmp_path: Path, mode: str
) -> None:
    flags = ("--intake-mode", mode, "--intake-batch-seconds", "5")
    intake = IntakeProcess(broker.bootstrap_servers, app_id, data_dir=tmp_path / "a", flags=flags)
    intake.make_topics()
    servers, topic = intake.bootstrap_servers, intake.topics.requests
    first = produce(servers, topic, [Record(b"1", key=b"k%d" % n, headers=GOOD) for n in range(20)])
    with intake:
        outcome(intake, first)
        eventually(lambda: committed(intake) == 20, 60, "the first batch is committed")
        assert intake.stop() == 0
    shutil.rmtree(tmp_path / "a")
    second = produce(
        servers, topic, [Record(b"2", key=b"k%d" % n, headers=GOOD) for n in range(20)]
    )
    with intake:
        outcome(intake, first + second)  # which also fails if one of the first comes again


def committed(intake: IntakeProcess) -> int:
    group = f"{intake.topics.app_id}-intake"
    consumer = Consumer({"bootstrap.servers": intake.bootstrap_servers, "group.id": group})
    places = [TopicPartition(intake.topics.requests, number) for number in range(2)]
    try:
        return sum(max(place.offset, 0) for place in consumer.committed(places, timeout=10))
    finally:
        consumer.close()


def test_a_broken_checkpoint_does_no_harm_where_the_group_has_offsets(
    broker: EmbeddedBroker, app_id: str, tmp_path: Path
) -> None:
    intake = IntakeProcess(broker.bootstrap_servers, app_id, data_dir=tmp_path)
    intake.make_topics()
    with intake:
        pass
    checkpoint = tmp_path / "intake" / app_id / "checkpoint"
    (checkpoint / "metadata").write_text("not what Spark wrote")
    sent = produce(
        intake.bootstrap_servers,
        intake.topics.requests,
        [Record(b"v", key=b"k", headers=GOOD)],
    )
    with intake:
        outcome(intake, sent)
