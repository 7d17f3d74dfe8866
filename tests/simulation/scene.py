"""Everybody in the world of one seed, and what they can be made to do."""

import random
from typing import Final

from punctual_worker.contract import actions
from punctual_worker.dispatch import entries
from punctual_worker.dispatch.entries import LogRecord
from simulation.broker import Broker, Claim
from simulation.dispatcher import Dispatcher, Steps
from simulation.log import show
from simulation.memory_table import LocalStore
from simulation.oracle import Oracle
from simulation.protocol import Protocol
from simulation.users import CRON, Intake, Users, headers_of, plan_of

BEGINNING_MS: Final = 1_000_000_000
DAY_MS: Final = 24 * 60 * 60 * 1000
"""Also the `min.compaction.lag.ms` that the dispatchers believe in."""
WEEK_MS: Final = 7 * DAY_MS
"""After so long without members a broker forgets a group."""
RETENTION_MS: Final = 100_000
"""`delete.retention.ms`: short, so that tombstones expire within a run."""
TRANSACTION_TIMEOUT_MS: Final = 12_000
MAX_SKEW_MS: Final = 5_000


class Scene:
    """Users, intake, broker, dispatchers and oracle; the seed decides how many and of what kind."""

    def __init__(
        self,
        seed: int,
        *,
        protocol: Protocol | None = None,
        story: list[str] | None = None,
        check_tables: bool = True,
        recurring: float | None = None,
        pausing: float | None = None,
    ) -> None:
        """`recurring` is the share of recurring schedules, `pausing` that of PAUSE and RESUME; if
        not given, the seed decides."""
        self.rng = rng = random.Random(seed)
        self.protocol = protocol or Protocol()
        self.check_tables = check_tables
        self.story = story
        self.now_ms = BEGINNING_MS
        self.batch = rng.choice((1, 2, 3, 8))
        self.budget = rng.choice((1, 2, 5))
        self.attempts = rng.choice((1, 2, 4))
        self.unknown: set[str] = set()
        self.failing: set[str] = set()
        partitions = rng.choice((1, 1, 2, 3))
        self.oracle = Oracle(partitions, attempts=self.attempts, max_skew_ms=MAX_SKEW_MS)
        self.broker = Broker(
            partitions,
            rng=rng,
            clock=lambda: self.now_ms,
            timeout_ms=TRANSACTION_TIMEOUT_MS,
            on_commit=self._on_commit,
        )
        self.broker.check_generation = self.protocol.generations_checked
        whims = random.Random(f"whims {seed}")
        drawn = whims.choice((0.0, 0.0, 0.3, 0.8))
        pauses = whims.choice((0.0, 0.0, 0.1, 0.4))
        self.users = Users(
            rng=rng,
            partitions=rng.choice((1, 2)),
            clock=lambda: self.now_ms,
            oracle=self.oracle,
            whims=whims,
            recurring=drawn if recurring is None else recurring,
            pausing=pauses if pausing is None else pausing,
        )
        if self.protocol.keyed_by_id:
            for log in self.broker.logs:
                log.compaction_key = self._schedule_id
        self._intakes = [self._new_intake([0] * len(self.users.sent))]
        self._intake_kept = [0] * len(self.users.sent)
        skew = rng.choice((0, 1_000, MAX_SKEW_MS))
        age_ms = RETENTION_MS * 1_000 if self.protocol.trusts_old_tables else RETENTION_MS // 2
        self._dispatchers = [
            Dispatcher(
                f"d{number}",
                self,
                skew_ms=rng.randint(-skew, skew),
                store=LocalStore(age_ms),
            )
            for number in range(rng.choice((1, 2, 2, 3)))
        ]
        self._lives: dict[Dispatcher, Steps] = {one: one.life() for one in self._dispatchers}
        self._paused: set[Dispatcher] = set()
        self._old_below = [0] * partitions
        self._fleet_stopping = False
        self._tempo = rng.choice((0.05, 1, 1, 2))
        """How much time passes; with little, the differences between clocks weigh more."""
        self._unclean = rng.choice((0.0, 0.1, 0.7))
        self.broker.group.restlessness = rng.choice((0.1, 0.5))
        self._steps = rng.choice((150, 300, 600))
        self._requests = rng.choice((8, 20, 50))

    # for those who live here

    def say(self, who: str, what: str) -> None:
        """A line of the story."""
        if self.story is not None:
            seconds = (self.now_ms - BEGINNING_MS) / 1000
            self.story.append(f"{len(self.story) + 1:>4}. {seconds:8.1f}s {who:<6} {what}")

    def log_lines(self) -> list[str]:
        """What the logs look like now, for the story."""
        lines = []
        for log in self.broker.logs:
            committed = self.broker.committed.get(log.number, (0, "none"))[1]
            lines.append(f"  partition {log.number}, end {log.end}, checkpoint: {committed}")
            lines += show(log.decided(), self._describe)
        return lines

    # what they can be made to do

    def _advance(self, dispatcher: Dispatcher) -> None:
        try:
            next(self._lives[dispatcher])
        except StopIteration:
            del self._lives[dispatcher]

    def _write_action(self, partition: int, key: bytes) -> None:
        request = self.oracle.requests[key]
        headers = actions.action_headers(headers_of(request), b"k", plan_of(request))
        value = request.value or b""
        offset = self.broker.logs[partition].append(key, value, headers, self.now_ms)
        self.oracle.arrived(partition, offset, key)
        self.say("intake", f"writes {key.decode()} to partition {partition} @{offset}")

    def _new_intake(self, start: list[int]) -> Intake:
        return Intake(self.users, start, len(self.broker.logs))

    def _pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        for producer in self.broker.time_out_transactions():
            self.say("broker", f"aborts the transaction of {producer}: time is up")

    def _kill(self, dispatcher: Dispatcher) -> None:
        self._lives.pop(dispatcher, None)
        self._paused.discard(dispatcher)
        self.say(dispatcher.name, "is killed")
        chance = self.rng.random()
        if chance < 0.25:
            dispatcher.store.lose()
            self.say(dispatcher.name, "loses its disk")
        elif chance < 0.45:
            dispatcher.store.go_back()
            self.say(dispatcher.name, "finds an old disk")

    def _revive(self, dispatcher: Dispatcher) -> None:
        dispatcher.stopping = False
        self._lives[dispatcher] = dispatcher.life()
        self.say(dispatcher.name, "starts")

    def _on_commit(self, claims: dict[int, Claim]) -> None:
        self.oracle.committed(claims, self.now_ms)

    def _schedule_id(self, record: LogRecord) -> bytes:
        request = self.oracle.requests.get(entries.base_key(record.key))
        return record.key if request is None else request.schedule_id.encode()

    def _words(self, key: bytes) -> str:
        request = self.oracle.requests[key]
        due = f"due {(request.due_ms - BEGINNING_MS) / 1000:.1f}s"
        if request.every_ms:
            due = f"at {CRON[request.every_ms]} ({request.misfire})"
        return f"{request.verb} {request.schedule_id} {due} to {request.destination}"

    def _describe(self, record: LogRecord) -> str:
        key = record.key.decode()
        if record.key == actions.CHECKPOINT_KEY:
            return f"{key} {record.value!r}"
        if record.value is None:
            return f"{key} tombstone"
        return f"{key} {self._words(entries.base_key(record.key))}"
