"""A simulated dispatcher: the real pure code, in steps between which anything may happen.

Every `yield` is a moment at which the dispatcher may be paused, killed or overtaken. What the real
loop does with Kafka is done here with the simulated broker, in the same order.
"""

from collections.abc import Generator, Iterator, Set
from typing import Final

from punctual_worker.contract import actions
from punctual_worker.contract.codes import Code
from punctual_worker.dispatch.deliveries import DESTINATION
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.restoring import LostCheckpointError
from punctual_worker.dispatch.verdicts import Budget, Judgement, Verdict
from simulation.broker import Claim, FencedError, RefusedError
from simulation.memory_table import LocalStore, MemoryTable
from simulation.series import ViolationError
from simulation.surroundings import (
    DestinationError,
    Owned,
    Surroundings,
    arm_fires_alone,
    produce,
    state_of,
    summary_of,
    write_alone,
)

Steps = Iterator[None]
_POSITION_EVERY_MS: Final = 10_000
"""How long a position that moved over our own records alone may stay uncommitted."""


def _producers(dispatcher: str) -> tuple[str, str]:
    return dispatcher, f"{dispatcher}-2"


class Dispatcher:
    """One process: its lives share a name, a clock and a disk."""

    def __init__(self, name: str, world: Surroundings, *, skew_ms: int, store: LocalStore) -> None:
        self.name = name
        self.skew_ms = skew_ms
        self.store = store
        self.stopping = False
        self._world = world
        self._broker = world.broker
        self._rng = world.rng
        self._protocol = world.protocol
        self._epochs: dict[str, int] = {}
        """Of its two transactional ids, which turns use as the real writer does."""
        self._generation = 0
        self._owned: dict[int, Owned] = {}
        self._more = False
        self._incoming: dict[int, Steps] = {}
        self._sweeping: Steps | None = None
        self._suspects: dict[str, int] = {}
        """Destinations that failed, and until when they are left alone; then they are probed."""
        self._policy = Policy(
            requests_topic="requests",
            writer=name,
            trace=False,
            attempts=world.attempts,
            backoff_ms=2_000,
        )

    def clock(self) -> int:
        return self._world.now_ms + self.skew_ms

    def life(self) -> Steps:
        """From start to stop; a crash just ends the stepping."""
        self._owned, self._incoming, self._suspects, self._more = {}, {}, {}, False
        self._sweeping = None
        yield from self._new_epoch()
        self._join()
        while True:
            yield
            try:
                self._poll()
                yield from self._go_on_taking_over()
                if self.stopping:
                    break
                yield from self._turn()
                self._go_on_sweeping()
            except FencedError as error:
                self._say(f"is fenced ({error}) and starts over")
                self._owned, self._incoming = {}, {}
                yield from self._new_epoch()
                self._join()
            except RefusedError as error:
                self._say(f"is refused: {error}; aborts")
        if self.name in self._broker.group.members:
            self._broker.group.leave(self.name)
        self._say("has stopped")

    @property
    def taking_over(self) -> bool:
        return bool(self._incoming)

    # membership

    def _new_epoch(self) -> Steps:
        for producer in _producers(self.name):
            epoch = None
            while epoch is None:
                yield
                epoch = self._broker.init_transactions(producer)
            self._epochs[producer] = epoch

    def _join(self) -> None:
        self._generation = self._broker.group.join(self.name)
        self._owned, self._incoming = {}, {}
        self._adopt()

    def _poll(self) -> None:
        group = self._broker.group
        if self.name not in group.members:
            self._say("was expelled and joins again")
            if self._protocol.keeps_partitions_it_lost:
                kept = dict(self._owned)
                self._join()
                for partition in kept.keys() & self._incoming.keys():
                    del self._incoming[partition]
                    self._owned[partition] = kept[partition]
            else:
                self._join()
        elif self._generation != group.generation:
            for partition in [*self._owned, *self._incoming]:
                kept = group.since[partition] <= self._generation
                if group.owner[partition] != self.name or not kept:
                    self._owned.pop(partition, None)
                    self._incoming.pop(partition, None)
            self._generation = group.generation
            self._adopt()

    def _adopt(self) -> None:
        for partition, owner in self._broker.group.owner.items():
            if owner == self.name and partition not in self._owned.keys() | self._incoming.keys():
                self._say(f"begins to take over partition {partition}")
                self._incoming[partition] = self._take_over(partition)

    @property
    def _is_current(self) -> bool:
        return self._generation == self._broker.group.generation

    # taking over

    def _go_on_taking_over(self) -> Steps:
        for partition, steps in list(self._incoming.items()):
            try:
                next(steps)
            except StopIteration:
                del self._incoming[partition]
            yield

    def _take_over(self, number: int) -> Steps:
        protocol, log = self._protocol, self._broker.logs[number]
        began_ms = self.clock()
        while protocol.fetch_is_stable and self._broker.offsets_pending(number):
            yield
        committed = self._broker.fetch_offset(number)
        known = None if committed is None else protocol.decode(committed[1])
        table = self.store.open(number, self.clock())
        take_over = protocol.take_over(table, known)
        yield
        while take_over.checkpoint is None:
            end = log.end if protocol.reads_to_high_watermark else log.stable_end
            at = take_over.read_from
            while at < end:
                batch = self._rng.choice((1, 3, 10, 100))
                records, after = log.read(at, batch, uncommitted=protocol.reads_uncommitted)
                if after == at:
                    self._fence_predecessor(known.writer if known is not None else "")
                else:
                    take_over.feed(records)
                    at = after
                yield
            try:
                take_over.end_of_log()
            except LostCheckpointError as error:
                raise ViolationError(f"partition {number} cannot be served: {error}") from error
        partition = protocol.partition(
            number, table=table, checkpoint=take_over.checkpoint, policy=self._policy
        )
        self.store.followed(number, began_ms)
        self._owned[number] = Owned(partition)
        self._say(f"has taken over partition {number} at {take_over.checkpoint.position}")
        self._check_table(partition, "after take-over")

    def _fence_predecessor(self, writer: str) -> None:
        """The log's end stands still below an open transaction: end it, sometimes."""
        if writer and writer != self.name and self._rng.random() < 0.3:
            self._say(f"fences {writer}")
            for producer in _producers(writer):
                self._broker.init_transactions(producer)

    # a turn

    def _turn(self) -> Steps:
        for number, owned in self._owned.items():
            log = self._broker.logs[number]
            records, owned.read_at = log.read(owned.read_at, self._world.batch)
            owned.held += records
            yield
        now_ms = self.clock()
        self._read_ahead(now_ms)
        if not self._more and not any(owned.is_due(now_ms) for owned in self._owned.values()):
            return
        turns = {
            number: owned.partition.turn(judge=self, now_ms=now_ms)
            for number, owned in self._owned.items()
            if not owned.partition.must_wait(now_ms)
        }
        for number, turn in turns.items():
            turn.take_in(self._owned[number].held)
        budget = Budget(self._world.budget)
        budget.delivered = sum(turn.delivered_at_once for turn in turns.values())
        for turn in turns.values():
            turn.collect_ready(budget)
        for turn in turns.values():
            turn.collect(budget)
        outcomes = {number: turn.finish() for number, turn in turns.items()}
        written = {
            number: outcome
            for number, outcome in outcomes.items()
            if self._must_write(self._owned[number], outcome, now_ms)
        }
        recorded = {n for n in written if self._must_record(self._owned[n], written[n])}
        self._more = True  # if it fails, it is tried again at once
        stands = True
        if written:
            stands = yield from self._carry_out(written, recorded, now_ms)
        if stands:
            self._more = any(outcome.more for outcome in outcomes.values())
            for number in outcomes:
                self._owned[number].held = []

    def _read_ahead(self, now_ms: int) -> None:
        """Some of what is due soon is made ready, at any time."""
        until = actions.order_key(now_ms + self._rng.choice((0, 10_000, 100_000)), b"")
        for owned in self._owned.values():
            owned.partition.ahead.extend(until=until, most=self._rng.choice((1, 2, 50)))

    def _must_write(self, owned: Owned, outcome: Outcome, now_ms: int) -> bool:
        before = owned.partition.checkpoint
        idle = now_ms - owned.committed_ms > _POSITION_EVERY_MS
        return outcome.writes(before) or (idle and outcome.checkpoint.position != before.position)

    def _must_record(self, owned: Owned, outcome: Outcome) -> bool:
        if self._protocol.records_every_turn:
            return outcome.writes(owned.partition.checkpoint)
        return self._rng.random() < 0.5

    def _carry_out(
        self, outcomes: dict[int, Outcome], recorded: set[int], now_ms: int
    ) -> Generator[None, None, bool]:
        """One transaction, then the tables; False if it was aborted and nothing has happened."""
        owned = {number: self._owned[number].partition for number in outcomes}
        before = {number: state_of(partition) for number, partition in owned.items()}
        transaction = None
        while transaction is None:
            yield
            producer = self._rng.choice(_producers(self.name))
            transaction = self._broker.begin(producer, self._epochs[producer])
        if self._protocol.settles_before_commit:
            self._settle(owned, outcomes, now_ms)
        try:
            # The client sends in the background: some records arrive after the offsets.
            queued = [number for number in outcomes if self._rng.random() < 0.3]
            for number, outcome in outcomes.items():
                transaction.claims[number] = Claim(now_ms)
                if number not in queued:
                    record = number in recorded
                    produce(self._world, transaction, number, outcome, now_ms, record=record)
                    yield
            self._go_on_sweeping()
            offsets = {
                number: (outcome.checkpoint.position, self._protocol.encode(outcome.checkpoint))
                for number, outcome in outcomes.items()
            }
            for number, offset in offsets.items():
                transaction.claims[number].offset = offset
            generation = (
                self._broker.group.generation
                if self._protocol.generation_asked_when_sent
                else self._generation
            )
            self._broker.send_offsets(transaction, self.name, generation, offsets)
            yield
            self._read_ahead(now_ms)
            self._go_on_sweeping()
            for number in queued:
                record = number in recorded
                produce(self._world, transaction, number, outcomes[number], now_ms, record=record)
                yield
            self._broker.commit(transaction)
        except DestinationError as error:
            self._broker.abort(transaction)
            again_ms = now_ms + 5_000 if error.destination in self._suspects else 0
            self._suspects[error.destination] = again_ms
            self._say(f"aborts: {error.destination} refuses")
        except RefusedError:
            self._broker.abort(transaction)
            if self._protocol.arms_fires_though_refused:
                for number, outcome in outcomes.items():
                    arm_fires_alone(self._broker, number, outcome, now_ms)
            if self._protocol.settles_after_failed_commit:
                self._settle(owned, outcomes, now_ms)
            raise
        else:
            self._say("commits " + ", ".join(summary_of(n, one) for n, one in outcomes.items()))
            for outcome in outcomes.values():
                for delivery in outcome.deliveries:
                    self._suspects.pop(delivery[DESTINATION], None)
            yield
            if not self._protocol.settles_before_commit:
                self._settle(owned, outcomes, now_ms)
            return True
        after = {number: state_of(partition) for number, partition in owned.items()}
        if self._world.check_tables and before != after:
            raise ViolationError(f"{self.name}: an aborted turn has changed a table")
        return False

    def _settle(
        self,
        owned: dict[int, Partition],
        outcomes: dict[int, Outcome],
        now_ms: int,
    ) -> None:
        for number, outcome in outcomes.items():
            owned[number].settle(outcome)
            self._owned[number].committed_ms = now_ms
            self.store.followed(number, now_ms)
            self._check_table(owned[number], "after a turn")
            if self._rng.random() < 0.1:
                self.store.back_up(number)

    def all_ready(self, destinations: Set[str]) -> bool:
        """As `Judge`."""
        return destinations.isdisjoint({*self._world.unknown, *self._suspects})

    def judge(self, entry: Entry) -> Verdict:
        """As `Judge`."""
        destination = entry.plan.destination
        if destination in self._world.unknown:
            return Verdict(Judgement.DEFER, Code.UNKNOWN_DESTINATION, "no such topic")
        if destination not in self._suspects:
            return Verdict(Judgement.READY)
        if self._suspects[destination] > self.clock():
            return Verdict(Judgement.DEFER, Code.DELIVERY_FAILED, "it failed")
        return Verdict(Judgement.PROBE)

    # sweeping

    def _go_on_sweeping(self) -> None:
        """Beside everything else: turns may begin, commit and fail between two steps."""
        if self._sweeping is None and self._rng.random() < 0.4:
            self._sweeping = self._sweep()
        if self._sweeping is not None and next(self._sweeping, self) is self:
            self._sweeping = None

    def _sweep(self) -> Steps:
        """Tombstones of what has fired: outside of any transaction, so even a zombie may."""
        for number, owned in list(self._owned.items()):
            partition = owned.partition
            rows = partition.sweepable(self._rng.choice((1, 3, 10)))
            if not rows:
                continue
            yield
            for order, _ in rows:
                write_alone(self._broker, number, order, self.clock())
            self._say(f"sweeps {len(rows)} of partition {number}")
            yield
            if self._owned.get(number) is owned:  # else it was given up, and its store is closed
                partition.swept(rows)

    # for the story

    def _check_table(self, partition: Partition, where: str) -> None:
        """Whether the table is what the oracle, who read the same log, has pending."""
        world, table = self._world, partition.table
        number = partition.number
        still_owner = self._is_current and self._broker.group.owner[number] == self.name
        if world.check_tables and still_owner and isinstance(table, MemoryTable):
            pending = table.pending(partition.checkpoint.cursor)
            world.oracle.check_table(
                number, set(pending), f"{self.name}, partition {number}, {where}"
            )

    def _say(self, what: str) -> None:
        self._world.say(self.name, what)
