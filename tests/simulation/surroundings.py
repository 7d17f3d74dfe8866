"""What a simulated dispatcher sees of its world, and what it writes into it."""

import random
from collections.abc import Set
from typing import Protocol as Interface

from punctual_worker.contract import actions
from punctual_worker.dispatch import entries
from punctual_worker.dispatch.deliveries import DESTINATION, VALUE, WANTED_MS, entry_of
from punctual_worker.dispatch.entries import Entry, LogRecord
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.restoring import tombstone_headers
from punctual_worker.dispatch.verdicts import Judgement, Verdict
from simulation.broker import Broker, Transaction
from simulation.memory_table import MemoryTable
from simulation.oracle import Oracle
from simulation.protocol import Protocol


class DestinationError(Exception):
    """A destination refused a message, and with it the transaction."""

    def __init__(self, destination: str) -> None:
        super().__init__(destination)
        self.destination = destination


class Owned:
    """A partition in service."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.held: list[LogRecord] = []
        """Read, and not yet part of a committed turn."""
        self.read_at = partition.checkpoint.position
        self.committed_ms = 0

    def is_due(self, now_ms: int) -> bool:
        due_ms = self.partition.next_due_ms()
        return bool(self.held) or (due_ms is not None and due_ms <= now_ms)


class AllReady:
    """A `Judge` of a world in which every destination is there and well."""

    def judge(self, entry: Entry) -> Verdict:
        return Verdict(Judgement.READY)

    def all_ready(self, destinations: Set[str]) -> bool:
        return True


class Surroundings(Interface):
    """What a dispatcher sees of the world."""

    rng: random.Random
    now_ms: int
    broker: Broker
    oracle: Oracle
    protocol: Protocol
    batch: int
    budget: int
    attempts: int
    unknown: set[str]
    failing: set[str]
    check_tables: bool

    def say(self, who: str, what: str) -> None: ...


def produce(
    world: Surroundings,
    transaction: Transaction,
    number: int,
    outcome: Outcome,
    now_ms: int,
    *,
    record: bool,
) -> None:
    """Write all that a turn of one partition writes, inside the transaction."""
    claim = transaction.claims[number]
    send, protocol = world.broker.produce, world.protocol
    world.broker.check_open(transaction)
    for delivery in outcome.deliveries:
        entry = entry_of(delivery)
        destination = delivery[DESTINATION]
        if destination in world.failing:
            raise DestinationError(destination)
        claim.deliveries.append((entry.key, destination, delivery[VALUE], delivery[WANTED_MS]))
        if protocol.tombstones_fired_before_commit:
            write_alone(world.broker, number, entry.order, now_ms)
    for rejection in outcome.rejections:
        entry = rejection.entry
        claim.rejections.append((entry.key, rejection.code.value, entry.plan.wanted_ms))
    for entry in outcome.rearmed:
        plan = entry.plan
        claim.rearmed.append((entry.key, plan.due_ms, plan.attempt, plan.wanted_ms))
        value, headers = entries.action_record(entry)
        is_next_fire = plan.cron and not plan.attempt
        if protocol.rearms_in_transaction and (protocol.fires_in_transaction or not is_next_fire):
            send(transaction, number, entry.key, value, headers, now_ms)
        else:
            world.broker.logs[number].append(entry.key, value, headers, now_ms)
    for entry in outcome.tombstones:
        claim.tombstones.add(entry.key)
        if not protocol.tombstones_in_transaction:
            write_alone(world.broker, number, entry.order, now_ms)
        elif protocol.tombstones_decisions:
            headers = tombstone_headers(entry.order)
            send(transaction, number, entry.key, None, headers, now_ms)
    if record:
        text = protocol.encode(outcome.checkpoint).encode()
        send(transaction, number, actions.CHECKPOINT_KEY, text, [], now_ms)


def write_alone(broker: Broker, number: int, order: bytes, timestamp_ms: int) -> None:
    """A tombstone outside of any transaction."""
    key = actions.order_action_key(order)
    broker.logs[number].append(key, None, tombstone_headers(order), timestamp_ms)


def arm_fires_alone(broker: Broker, number: int, outcome: Outcome, timestamp_ms: int) -> None:
    """The next fires of recurring schedules, outside of any transaction: only mutants do this."""
    for entry in outcome.rearmed:
        if entry.plan.cron:
            value, headers = entries.action_record(entry)
            broker.logs[number].append(entry.key, value, headers, timestamp_ms)


def state_of(partition: Partition) -> tuple[object, ...]:
    """All that a failed turn must leave as it was; what has fired may be swept at any time."""
    table = partition.table
    assert isinstance(table, MemoryTable)
    return partition.checkpoint, table.position, table.pending(partition.checkpoint.cursor)


def summary_of(number: int, outcome: Outcome) -> str:
    """A turn in words."""
    done = [f"delivers {entry_of(one).key.decode()}" for one in outcome.deliveries]
    done += [f"rejects {one.entry.key.decode()} {one.code}" for one in outcome.rejections]
    done += [f"re-arms {one.key.decode()} for {one.plan.due_ms}" for one in outcome.rearmed]
    done += [f"decides {one.key.decode()}" for one in outcome.tombstones]
    return (
        f"partition {number} up to {outcome.checkpoint.position} ({', '.join(done) or 'nothing'})"
    )
