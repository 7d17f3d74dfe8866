"""Taking partitions over, beside the loop: reads checkpoints and logs, fills stores.

A thread of its own, so that the partitions that are served already go on firing meanwhile.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.entries import LogRecord
from punctual_worker.dispatch.fencing import Fencing
from punctual_worker.dispatch.group import log_record
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.restoring import TakeOver
from punctual_worker.dispatch.store import Store, StoreMemory, now_ms
from punctual_worker.logs import kafka_logger

_GRACE_SECONDS: Final = 0.5
"""How long a former owner may take to finish its transaction before it is fenced."""
_CONNECT_SECONDS: Final = 1.0
_BATCH: Final = 5_000
_ASK_SECONDS: Final = 10
_SLOW_SECONDS: Final = 2
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogLocation:
    """The actions topic, and where its local stores are."""

    topic: str
    topic_id: str
    group_id: str
    stores: Path
    store_max_age_ms: int


class Restored(NamedTuple):
    """Result for one partition: it, or why it cannot be served."""

    number: int
    ticket: object
    partition: Partition | None
    store: Store | None
    seconds: float
    error: Exception | None


class Restorer:
    """Turns assigned partition numbers into partitions that can be served."""

    def __init__(
        self,
        config: dict[str, Any],
        *,
        location: LogLocation,
        policy: Policy,
        fencing: Fencing,
        fences_the_gone: bool,
        deliver_if_lost: bool,
    ) -> None:
        self.results: queue.SimpleQueue[Restored] = queue.SimpleQueue()
        self._config = config
        self._location = location
        self._policy = policy
        self._fencing = fencing
        self._fences_the_gone = fences_the_gone
        self._deliver_if_lost = deliver_if_lost
        self._memory = StoreMemory()
        self._orders: queue.SimpleQueue[dict[int, object] | None] = queue.SimpleQueue()
        self._tickets: dict[int, object] = {}
        self._admin = AdminClient(config, logger=kafka_logger())
        self._patient = self._consumer("read_committed")
        """Asks for offsets, waiting for open transactions; kept, because connecting takes time."""
        self._impatient = self._consumer("read_uncommitted")
        self._connected = False
        self._thread = threading.Thread(target=self._work, name="take-over", daemon=True)
        self._thread.start()

    def submit(self, numbers: Iterable[int]) -> None:
        """Begin to take these over; results come in `results`."""
        tickets = {number: object() for number in numbers}
        self._tickets.update(tickets)
        self._orders.put(tickets)

    def cancel(self, number: int) -> None:
        """It is not ours any more."""
        self._tickets.pop(number, None)

    def wanted(self, restored: Restored) -> bool:
        """Whether a result is still asked for; if so, it is now the caller's."""
        if self._tickets.get(restored.number) is not restored.ticket:
            return False
        del self._tickets[restored.number]
        return True

    @property
    def busy(self) -> bool:
        """Whether results are still to come."""
        return bool(self._tickets)

    def close(self) -> None:
        """End the thread; stores of results nobody took are closed."""
        self._tickets.clear()
        self._orders.put(None)
        self._thread.join()
        self._patient.close()
        self._impatient.close()
        while not self.results.empty():
            restored = self.results.get()
            if restored.store is not None:
                restored.store.close()

    def _work(self) -> None:
        while (tickets := self._orders.get()) is not None:
            while tickets:
                try:
                    self._restore(tickets)
                    break
                except KafkaException as error:
                    _log.warning("taking over %s, trying again: %s", sorted(tickets), error)
                    time.sleep(0.2)
                    # After a leader has changed, the client goes on asking with the epoch it
                    # knows, and is refused, until its metadata is old: minutes. A new one asks.
                    self._admin = AdminClient(self._config, logger=kafka_logger())
                except Exception as error:  # without an answer the partitions would wait for ever
                    _log.exception("taking over %s", sorted(tickets))
                    for number, ticket in tickets.items():
                        self.results.put(Restored(number, ticket, None, None, 0, error))
                    break
                tickets = {n: t for n, t in tickets.items() if self._tickets.get(n) is t}

    def _restore(self, tickets: dict[int, object]) -> None:
        began, began_ms = time.monotonic(), now_ms()
        committed = self._committed(list(tickets))
        asked = time.monotonic() - began
        if asked > _SLOW_SECONDS:
            _log.info("asking for the offsets of %s took %.1f s", sorted(tickets), asked)
        stores: dict[int, Store] = {}
        open_takeovers: dict[int, TakeOver] = {}
        try:
            for number in tickets:
                stores[number] = Store(
                    self._location.stores / f"partition-{number}",
                    memory=self._memory,
                    policy=self._policy,
                    topic_id=self._location.topic_id,
                    max_age_ms=self._location.store_max_age_ms,
                )
                open_takeovers[number] = TakeOver(
                    stores[number], committed[number], deliver_if_lost=self._deliver_if_lost
                )
            while open_takeovers:
                self._drop_cancelled(tickets, open_takeovers, stores)
                writers = {c.writer for c in committed.values() if c is not None}
                _LogReading(self._consumer, self._admin, self._location.topic).read(
                    open_takeovers,
                    on_stuck=lambda: self._fencing.fence(writers),  # noqa: B023 called before it changes
                    still_wanted=lambda n: self._tickets.get(n) is tickets[n],
                )
                for number, takeover in list(open_takeovers.items()):
                    error = _finish(takeover)
                    if takeover.checkpoint is None and error is None:
                        continue
                    del open_takeovers[number]
                    stores[number].in_step(began_ms)
                    self._report(
                        number,
                        tickets[number],
                        store=stores.pop(number),
                        checkpoint=takeover.checkpoint,
                        seconds=time.monotonic() - began,
                        error=error,
                    )
        finally:
            for store in stores.values():
                store.close()

    def _drop_cancelled(
        self,
        tickets: dict[int, object],
        takeovers: dict[int, TakeOver],
        stores: dict[int, Store],
    ) -> None:
        for number in list(takeovers):
            if self._tickets.get(number) is not tickets[number]:
                del takeovers[number]
                stores.pop(number).close()

    def _report(
        self,
        number: int,
        ticket: object,
        *,
        store: Store,
        checkpoint: Checkpoint | None,
        seconds: float,
        error: Exception | None,
    ) -> None:
        partition = None
        if checkpoint is None:
            store.close()
        else:
            partition = Partition(number, table=store, checkpoint=checkpoint, policy=self._policy)
        self.results.put(
            Restored(number, ticket, partition, store if partition else None, seconds, error)
        )

    def _committed(self, numbers: list[int]) -> dict[int, Checkpoint | None]:
        """Committed checkpoints, once no transaction that could change them is open."""
        before = self._ask_committed(self._impatient, numbers, seconds=_ASK_SECONDS)
        writers = {known.writer for known in before.values() if known is not None}
        if self._fences_the_gone:
            self._fencing.fence_the_gone(writers)
        grace = _GRACE_SECONDS if self._connected else _GRACE_SECONDS + _CONNECT_SECONDS
        try:
            stable = self._ask_committed(self._patient, numbers, seconds=grace)
            self._connected = True
            return stable
        except KafkaException:
            # A transaction of a vanished owner holds them up: what was committed before it says
            # who that is.
            self._fencing.fence(writers)
            return self._ask_committed(self._patient, numbers, seconds=_ASK_SECONDS)

    def _ask_committed(
        self, consumer: Consumer, numbers: list[int], *, seconds: float
    ) -> dict[int, Checkpoint | None]:
        places = [TopicPartition(self._location.topic, number) for number in numbers]
        found = consumer.committed(places, timeout=seconds)
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: _told(place) for place in found}

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                **self._config,
                "group.id": self._location.group_id,  # to read its offsets; never joined from here
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 32_768,
                "fetch.wait.max.ms": 50,  # so late comes the word that a partition has ended
            },
            logger=kafka_logger(),
        )


class _LogReading:
    """One reading of several partitions, each from its place to the log's end."""

    def __init__(self, consumer: Callable[[str], Consumer], admin: AdminClient, topic: str) -> None:
        self._new_consumer = consumer
        self._admin = admin
        self._topic = topic

    def read(
        self,
        takeovers: dict[int, TakeOver],
        *,
        on_stuck: Callable[[], None],
        still_wanted: Callable[[int], bool],
    ) -> None:
        """Feed everything up to what the end is now, records of open transactions awaited."""
        ends = self._ends(list(takeovers))
        unread = {n for n, takeover in takeovers.items() if takeover.read_from < ends[n]}
        if not unread:
            return
        consumer = self._new_consumer("read_committed")
        try:
            consumer.assign(
                [TopicPartition(self._topic, n, takeovers[n].read_from) for n in unread]
            )
            # To connect takes its time too; that nothing can be read for now is heard then.
            patience = time.monotonic() + _GRACE_SECONDS + _CONNECT_SECONDS
            heard = False
            while unread := {n for n in unread if still_wanted(n)}:
                messages = consumer.consume(_BATCH, 0.05)
                finished, progress = _feed(messages, takeovers, ends)
                unread -= finished
                if progress or (messages and not heard):
                    heard = True
                    patience = time.monotonic() + _GRACE_SECONDS
                elif unread and time.monotonic() > patience:
                    on_stuck()
                    patience = time.monotonic() + _ASK_SECONDS
        finally:
            consumer.close()

    def _ends(self, numbers: list[int]) -> dict[int, int]:
        """High watermarks: past every open transaction, where a committed reader cannot see yet."""
        places = {TopicPartition(self._topic, n): OffsetSpec.latest() for n in numbers}  # type: ignore[no-untyped-call]
        answers = self._admin.list_offsets(
            places,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_ASK_SECONDS,
        )
        return {
            place.partition: int(answer.result(2 * _ASK_SECONDS).offset)
            for place, answer in answers.items()
        }


def _feed(
    messages: list[Message], takeovers: dict[int, TakeOver], ends: dict[int, int]
) -> tuple[set[int], bool]:
    """Which partitions have reached their end, and whether anything came at all."""
    finished: set[int] = set()
    batches: dict[int, list[LogRecord]] = {}
    for message in messages:
        error, number = message.error(), message.partition() or 0
        if error is None:
            batches.setdefault(number, []).append(log_record(message))
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            if (message.offset() or 0) >= ends[number]:
                finished.add(number)
        elif not error.retriable():
            raise KafkaException(error)
    for number, records in batches.items():
        takeovers[number].feed(records)
    return finished, bool(batches)


def _told(place: TopicPartition) -> Checkpoint | None:
    """The checkpoint in an offset's metadata; none if somebody else has set the offset."""
    try:
        return checkpoints.decode(place.metadata) if place.metadata else None
    except checkpoints.InvalidCheckpointError as error:
        _log.warning("partition %d: %s; the log is asked instead", place.partition, error)
        return None


def _finish(takeover: TakeOver) -> Exception | None:
    try:
        takeover.end_of_log()
    except Exception as error:  # whatever it is, only this partition cannot be served
        return error
    return None
