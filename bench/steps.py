"""What the dispatcher's own steps take of a core, per message: the profile behind the figures.

python bench/steps.py            # CPU time, so it says something on a busy machine too
python bench/steps.py --profile  # and which functions it goes to

No broker: the records are made here, and `produce` only fills the client's queue. Each step is the
dispatcher's own code on its own store, in batches of 10,000 in one partition.
"""

import argparse
import cProfile
import gc
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parent.parent))

from confluent_kafka import Producer
from punctual_worker.contract import actions, headers
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.contract.times import format_ms
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.destinations import Destinations
from punctual_worker.dispatch.entries import LogRecord, read_entry
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.restoring import Restoration
from punctual_worker.dispatch.store import Store, StoreMemory, now_ms
from punctual_worker.dispatch.verdicts import Budget

from bench.records import USER_HEADER, delivered_headers, key_of, value_of

_BATCH: Final = 10_000
_ROUNDS: Final = 10
_TOPIC: Final = "destination"
_POLICY: Final = Policy(requests_topic="bench-schedule-requests", writer="bench")


def new_store(folder: Path) -> Store:
    """An empty one."""
    memory = StoreMemory()
    return Store(folder, memory=memory, policy=_POLICY, topic_id="bench", max_age_ms=1 << 40)


class Steps:
    """CPU time of each step, by round."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {}

    def time(self, name: str, step: Callable[[], object]) -> None:
        """Run a step; microseconds per message."""
        began = time.process_time()
        step()
        spent = (time.process_time() - began) / _BATCH * 1e6
        self.took.setdefault(name, []).append(spent)

    def print(self) -> None:
        """Medians: the first round finds everything cold."""
        for name, took in self.took.items():
            print(f"{name:<58} {statistics.median(took):>6.2f} µs")


def log_records(first: int, due_ms: int) -> list[LogRecord]:
    """A batch of the log, as intake writes it."""
    plan = actions.encode_plan(Plan(Verb.ADD, due_ms, _TOPIC))
    own = [
        USER_HEADER,
        (headers.DELIVER_TO, _TOPIC.encode()),
        (headers.DELIVER_AT, format_ms(due_ms).encode()),
    ]
    return [
        LogRecord(
            offset,
            due_ms,
            actions.action_key(actions.Coordinates(actions.NATIVE_SOURCE, 0, offset)),
            value_of(offset),
            [*own, (headers.ACTION_USER_KEY, key_of(offset)), (headers.ACTION_PLAN, plan)],
        )
        for offset in range(first, first + _BATCH)
    ]


def queue_only() -> Producer:
    """A producer that nobody answers."""
    nowhere = "127.0.0.1:1"
    config = {"bootstrap.servers": nowhere, "partitioner": "murmur2_random", "log_level": 0}
    return Producer({**config, "queue.buffering.max.messages": 1_000_000})


class Dispatcher:
    """One partition on a store, its turns taken by hand."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        self._steps = steps
        self._store = new_store(folder)
        self._partition = Partition(0, table=self._store, checkpoint=Checkpoint(), policy=_POLICY)
        self._judge = Destinations(lambda: {_TOPIC: 8}, now_ms)
        self._judge.refresh_if_old()
        self._outcome = Outcome(Checkpoint())
        self._producer = queue_only()
        self._clock_ms = now_ms()

    def round(self, first: int) -> None:
        """Ten thousand messages taken in, made ready, fired and swept."""
        steps, partition = self._steps, self._partition
        due_ms = self._clock_ms + 60_000
        records = log_records(first, due_ms)
        steps.time("taking in: record to entry alone", lambda: [read_entry(r) for r in records])
        steps.time("taking in: decide (with record to entry)", lambda: self._take_in(records))
        steps.time("taking in: settle in the store", lambda: partition.settle(self._outcome))
        later = actions.order_key(due_ms + 1, b"")
        steps.time("ahead: read and make ready", lambda: self._make_ready(later))
        steps.time("firing: collect", lambda: self._collect(due_ms))
        self._clock_ms = due_ms
        steps.time("firing: hand over to the client", self._produce)
        self._producer.purge()
        steps.time("firing: settle", lambda: partition.settle(self._outcome))
        rows = partition.sweepable(_BATCH)
        steps.time("afterwards: find what has fired", lambda: partition.sweepable(_BATCH))
        steps.time("afterwards: forget it", lambda: partition.swept(rows))

    def _take_in(self, records: list[LogRecord]) -> None:
        turn = self._partition.turn(judge=self._judge, now_ms=self._clock_ms)
        turn.take_in(records)
        self._outcome = turn.finish()

    def _make_ready(self, until: bytes) -> None:
        while self._partition.ahead.extend(until=until, most=250):
            pass

    def _collect(self, at_ms: int) -> None:
        turn = self._partition.turn(judge=self._judge, now_ms=at_ms)
        turn.collect(Budget(_BATCH))
        self._outcome = turn.finish()

    def _produce(self) -> None:
        produce = self._producer.produce
        for destination, value, key, its_headers, *_ in self._outcome.deliveries:
            produce(destination, value, key, -1, None, None, 0, its_headers)


def bare(steps: Steps, producer: Producer) -> None:
    """The same hand-over without a scheduler."""
    records = [(value_of(number), key_of(number)) for number in range(_BATCH)]
    its_headers = delivered_headers()

    def produce() -> None:
        for value, key in records:
            producer.produce(_TOPIC, value, key, headers=its_headers)

    steps.time("a bare producer: hand over to the client", produce)
    producer.purge()


def restore(steps: Steps, folder: Path) -> None:
    """An empty store filled from the log."""
    store = new_store(folder)
    restoration = Restoration(store, Checkpoint(position=1 << 40))
    for number in range(_ROUNDS):
        records = log_records(number * _BATCH, now_ms() + 3_600_000)
        steps.time("restoring: fold into the store", lambda r=records: restoration.fold(r))


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    profile = cProfile.Profile() if parser.parse_args().profile else None
    gc.freeze()
    gc.disable()  # as the dispatcher does
    steps = Steps()
    with tempfile.TemporaryDirectory() as folder, profile or nullcontext():
        dispatcher = Dispatcher(Path(folder) / "fired", steps)
        producer = queue_only()
        for number in range(_ROUNDS):
            dispatcher.round(number * _BATCH)
            bare(steps, producer)
        restore(steps, Path(folder) / "restored")
    steps.print()
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
