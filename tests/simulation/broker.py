"""The broker: transactions, fencing, and the consumer group that owns the actions partitions.

Harsher than Kafka where that is simpler: a new generation forms at once, without waiting for its
members, and a partition moves at once. A commit is decided first; the markers that make it visible
in each partition, and in the group's offsets, come later and in any order.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from punctual_worker.contract import actions
from simulation.log import PartitionLog, State


class RefusedError(Exception):
    """The broker said no; the transaction cannot be committed any more."""


class FencedError(RefusedError):
    """Another producer with this transactional id has come, or the time was up."""


class WrongGenerationError(RefusedError):
    """The group has moved on without this member."""


@dataclass
class Claim:
    """What one committed turn says about one partition: all that the oracle gets to see."""

    now_ms: int
    deliveries: list[tuple[bytes, str, bytes | None, int]] = field(default_factory=list)
    """Action key, destination, value, the time it was scheduled for."""
    rejections: list[tuple[bytes, str, int]] = field(default_factory=list)
    """Action key, code, the time it was scheduled for."""
    rearmed: list[tuple[bytes, int, int, int]] = field(default_factory=list)
    """Action key, due, attempt, the time it is scheduled for."""
    tombstones: set[bytes] = field(default_factory=set)
    offset: tuple[int, str] | None = None
    """Committed position and metadata."""


class Transaction:
    """A transaction of one producer, over any number of partitions."""

    def __init__(self, number: int, producer: str, epoch: int, started_ms: int) -> None:
        self.number = number
        self.producer = producer
        self.epoch = epoch
        self.started_ms = started_ms
        self.state = State.OPEN
        self.unmarked: list[PartitionLog] = []
        self.offsets: dict[int, tuple[int, str]] = {}
        self.claims: dict[int, Claim] = {}

    def state_of(self) -> State:
        return self.state

    @property
    def complete(self) -> bool:
        """Whether every marker is written."""
        return self.state is not State.OPEN and not self.unmarked and not self.offsets


class Group:
    """The dispatchers' consumer group."""

    def __init__(self, partitions: int, rng: random.Random) -> None:
        self.generation = 0
        self.members: list[str] = []
        self.owner: dict[int, str | None] = dict.fromkeys(range(partitions))
        self.since: dict[int, int] = dict.fromkeys(range(partitions), 0)
        """Generation from which on the owner has had the partition without a break."""
        self.restlessness = 0.25
        """How likely a partition is to move when the group is balanced anew."""
        self._rng = rng

    def join(self, member: str) -> int:
        """A new life of a member: whatever an earlier one owned, this one does not."""
        if member not in self.members:
            self.members.append(member)
        for partition, owner in self.owner.items():
            if owner == member:
                self.owner[partition] = None
        return self.rebalance()

    def leave(self, member: str) -> None:
        """Clean stop, or expelled because nothing was heard of it."""
        self.members.remove(member)
        for partition, owner in self.owner.items():
            if owner == member:
                self.owner[partition] = None
        self.rebalance()

    def rebalance(self) -> int:
        """A new generation: orphans get an owner, and sometimes a partition moves for balance."""
        self.generation += 1
        for partition, owner in self.owner.items():
            if self.members and (owner is None or self._rng.random() < self.restlessness):
                chosen = self._rng.choice(self.members)
                if chosen != owner:
                    self.owner[partition] = chosen
                    self.since[partition] = self.generation
        return self.generation


class Broker:
    """All that the parts share."""

    def __init__(
        self,
        partitions: int,
        *,
        rng: random.Random,
        clock: Callable[[], int],
        timeout_ms: int,
        on_commit: Callable[[dict[int, Claim]], None],
    ) -> None:
        self.logs = [PartitionLog(number) for number in range(partitions)]
        self.group = Group(partitions, rng)
        self.committed: dict[int, tuple[int, str]] = {}
        self._before: dict[int, list[tuple[int, str]]] = {}
        """All that was ever committed."""
        self._confused: set[int] = set()
        """Partitions whose last offset a crash may have taken out of the coordinator's mind."""
        self.check_generation = True
        self._rng = rng
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_commit = on_commit
        self._epochs: dict[str, int] = {}
        self._current: dict[str, Transaction] = {}
        self._incomplete: list[Transaction] = []
        self._count = 0

    # producers

    def init_transactions(self, producer: str) -> int | None:
        """A new epoch, which fences every older one; None while the last commit is not through."""
        current = self._current.get(producer)
        if current is not None and current.state is State.OPEN:
            self._decide(current, State.ABORTED)
        self._epochs[producer] = self._epochs.get(producer, 0) + 1
        if current is not None and not current.complete:
            return None
        return self._epochs[producer]

    def begin(self, producer: str, epoch: int) -> Transaction | None:
        """A new transaction; None while the last one is not through."""
        self._check_epoch(producer, epoch)
        current = self._current.get(producer)
        if current is not None and not current.complete:
            return None
        self._count += 1
        transaction = Transaction(self._count, producer, epoch, self._clock())
        self._current[producer] = transaction
        self._incomplete.append(transaction)
        return transaction

    def produce(
        self,
        transaction: Transaction,
        partition: int,
        key: bytes,
        value: bytes | None,
        headers: actions.Headers,
        timestamp_ms: int,
    ) -> int:
        """Write to an actions partition inside the transaction."""
        self.check_open(transaction)
        log = self.logs[partition]
        if log not in transaction.unmarked:
            transaction.unmarked.append(log)
        return log.append(
            key,
            value,
            headers,
            timestamp_ms,
            transaction=transaction.number,
            state_of=transaction.state_of,
        )

    def send_offsets(
        self,
        transaction: Transaction,
        member: str,
        generation: int,
        offsets: dict[int, tuple[int, str]],
    ) -> None:
        """Offsets that count once the transaction does; only from a member of this generation."""
        self.check_open(transaction)
        current = member in self.group.members and generation == self.group.generation
        if self.check_generation and not current:
            raise WrongGenerationError(f"generation {generation} is over")
        transaction.offsets.update(offsets)

    def commit(self, transaction: Transaction) -> None:
        """Decide for good; the markers follow."""
        self.check_open(transaction)
        self._decide(transaction, State.COMMITTED)
        self._on_commit(transaction.claims)

    def abort(self, transaction: Transaction) -> None:
        """Give up; harmless if that was decided before."""
        if transaction.state is State.OPEN:
            self._decide(transaction, State.ABORTED)

    def check_open(self, transaction: Transaction) -> None:
        """Whether its producer may still use it."""
        self._check_epoch(transaction.producer, transaction.epoch)
        if transaction.state is not State.OPEN:
            raise FencedError("the transaction is over")

    # behind the scenes

    def write_some_marker(self) -> bool:
        """Make one partition, or the group's offsets, see what was decided. False if all do."""
        decided = [one for one in self._incomplete if one.state is not State.OPEN]
        if not decided:
            return False
        transaction = self._rng.choice(decided)
        pieces = len(transaction.unmarked) + bool(transaction.offsets)
        if pieces:
            chosen = self._rng.randrange(pieces)
            if chosen < len(transaction.unmarked):
                transaction.unmarked.pop(chosen).write_marker(transaction.number)
            else:
                if transaction.state is State.COMMITTED:
                    self.committed.update(transaction.offsets)
                    self._confused.difference_update(transaction.offsets)
                    for partition, offset in transaction.offsets.items():
                        self._before.setdefault(partition, []).append(offset)
                transaction.offsets.clear()
        if transaction.complete:
            self._incomplete.remove(transaction)
        return True

    def time_out_transactions(self) -> list[str]:
        """Abort what has been open for too long; whose it was."""
        late = []
        for transaction in self._incomplete:
            age_ms = self._clock() - transaction.started_ms
            if transaction.state is State.OPEN and age_ms > self._timeout_ms:
                self._decide(transaction, State.ABORTED)
                self._epochs[transaction.producer] += 1
                late.append(transaction.producer)
        return late

    def confuse(self) -> None:
        """The coordinator of the group crashes and comes back without its latest knowledge."""
        self._confused = set(range(len(self.logs)))

    def fetch_offset(self, partition: int) -> tuple[int, str] | None:
        """The committed offset; from a coordinator that crashed perhaps an older one."""
        if partition in self._confused and self._rng.random() < 0.7:
            return self._rng.choice([None, *self._before.get(partition, [])[-4:]])
        return self.committed.get(partition)

    def offsets_pending(self, partition: int) -> bool:
        """Whether a stable fetch of this partition's offset has to wait."""
        known = partition not in self._confused
        return any(
            partition in one.offsets and (known or one.state is State.OPEN)
            for one in self._incomplete
        )

    @property
    def quiet(self) -> bool:
        """Whether no transaction is under way."""
        return not self._incomplete

    def _decide(self, transaction: Transaction, state: State) -> None:
        transaction.state = state
        if state is State.ABORTED:
            transaction.offsets.clear()
        if transaction.complete:
            self._incomplete.remove(transaction)

    def _check_epoch(self, producer: str, epoch: int) -> None:
        if self._epochs.get(producer) != epoch:
            raise FencedError(f"{producer} has a newer epoch")
