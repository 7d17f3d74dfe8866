"""A broker of its own, one intake, three dispatchers, and the ways to hurt them."""

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka.admin import AdminClient
from punctual_worker.contract.topics import TopicNames, topic_specs
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.topics.admin import TopicAdmin
from support.eventually import eventually
from support.kafka import Record, consume_committed, create_topic
from support.processes import Part

APP = "chaos"
DISPATCHERS = 3
TRANSACTION_TIMEOUT_MS = 10_000
COMPACTION_LAG_MS = 60_000
"""Longer than any dispatcher is ever behind here: the design's limit."""
BROKER_CONFIG = {"log.cleaner.backoff.ms": "500"}
EAGER_COMPACTION = {
    "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
    "delete.retention.ms": str(COMPACTION_LAG_MS),
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "3000",
    "segment.bytes": "1048576",
}


@dataclass(frozen=True)
class Fault:
    """What was done, and when."""

    kind: str
    began_ms: int
    ended_ms: int
    alone: bool
    """Nothing was broken when it began, and all was mended before the next began."""


class World:
    """Started by `start`, gone after `stop`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.topics = TopicNames(APP)
        self.destinations = [f"{APP}-destination-{n}" for n in range(3)]
        self.flaky = f"{APP}-destination-flaky"
        self.probed = f"{APP}-destination-probed"
        self.read_before_deletion: list[Record] = []
        self.ended_by_themselves: list[str] = []
        self.faults: list[Fault] = []
        self.folder = folder
        self._random = random.Random(f"faults {seed}")
        self.broker = EmbeddedBroker(folder / "broker", extra_config=BROKER_CONFIG)
        self.dispatchers: list[Part] = []
        self.intake: Part | None = None

    @property
    def parts(self) -> list[Part]:
        return [*self.dispatchers, *([self.intake] if self.intake else [])]

    def start(self) -> None:
        self.broker.start()
        servers = self.broker.bootstrap_servers
        specs = topic_specs(
            self.topics,
            request_partitions=2,
            action_partitions=6,
            replication_factor=1,
            history=True,
        )
        specs = [
            replace(spec, config={**spec.config, **EAGER_COMPACTION})
            if spec.name == self.topics.actions
            else spec
            for spec in specs
        ]
        assert all(r.ok for r in TopicAdmin({"bootstrap.servers": servers}).ensure(specs))
        for name in (*self.destinations, self.flaky, self.probed):
            create_topic(servers, name, 2)
        common = {"bootstrap_servers": servers, "app_id": APP}
        # short batches: each fault then meets another stage of a batch
        self.intake = Part(
            "intake", folder=self.folder / "intake", intake_batch_seconds=10, **common
        )
        self.dispatchers = [
            Part(
                "dispatcher",
                folder=self.folder / f"dispatcher-{n}",
                history="true",
                retry_backoff_ms=300,
                delivery_attempts=6,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                **common,
            )
            for n in range(DISPATCHERS)
        ]
        for part in self.parts:
            part.start(wait=False)
        self.wait_ready()

    def wait_ready(self) -> None:
        for part in self.parts:
            part.wait_ready(180)

    def stop(self) -> None:
        for part in self.parts:
            part.kill_if_left()
        self.broker.kill()

    def tend(self) -> None:
        """What ended by itself is started again, as an orchestrator would."""
        for part in self.parts:
            if _has_ended(part):
                self.ended_by_themselves.append(f"{part.folder.name}: {part.log()[-400:]}")
                part.start(wait=False)

    def wait_mended(self, probe: Callable[[str], set[bytes]]) -> None:
        """Until messages go through every partition again."""
        self.tend()
        self.wait_ready()
        values = probe(self.probed)
        consume_committed(
            self.broker.bootstrap_servers,
            self.probed,
            until=lambda records: values <= {record.value for record in records},
            timeout=120,
        )

    # hurting

    @property
    def kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "dispatcher kill -9": self._kill_dispatcher,
            "dispatcher stopped and continued": self._freeze_dispatcher,
            "local stores deleted": self._delete_stores,
            "intake kill -9": self._kill_intake,
            "intake kill -9, its directory deleted": self._delete_intake,
            "broker kill -9": self._kill_broker,
            "destination deleted and made again": self._remake_destination,
        }

    def hurt(self, kind: str, *, alone: bool) -> Fault:
        began = _now_ms()
        self.kinds[kind]()
        fault = Fault(kind, began, _now_ms(), alone)
        self.faults.append(fault)
        return fault

    def pause(self, least: float, most: float) -> None:
        """Let time pass: what happens in it is what the run is about."""
        time.sleep(self._random.uniform(least, most))

    def _kill_dispatcher(self) -> None:
        part = self._random.choice(self.dispatchers)
        part.kill()
        self.pause(0.5, 8)
        part.start(wait=False)

    def _freeze_dispatcher(self) -> None:
        part = self._random.choice(self.dispatchers)
        part.freeze()
        self.pause(TRANSACTION_TIMEOUT_MS / 1000 + 2, TRANSACTION_TIMEOUT_MS / 1000 + 5)
        part.thaw()

    def _delete_stores(self) -> None:
        part = self._random.choice(self.dispatchers)
        part.kill()
        shutil.rmtree(part.folder / "dispatcher")
        part.start(wait=False)

    def _kill_intake(self) -> None:
        assert self.intake is not None
        self.intake.kill()
        self.intake.start(wait=False)

    def _delete_intake(self) -> None:
        assert self.intake is not None
        self.intake.kill()
        shutil.rmtree(self.intake.folder / "intake")
        self.intake.start(wait=False)

    def _kill_broker(self) -> None:
        self.broker.kill()
        self.pause(0.2, 3)
        self.broker.start()

    def _remake_destination(self) -> None:
        servers = self.broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        self.read_before_deletion += consume_committed(servers, self.flaky)
        admin.delete_topics([self.flaky])[self.flaky].result(20)
        eventually(lambda: self.flaky not in admin.list_topics(timeout=10).topics)
        self.pause(1, 6)
        create_topic(servers, self.flaky, 2)


def _has_ended(part: Part) -> bool:
    return part._process is None or part._process.poll() is not None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
