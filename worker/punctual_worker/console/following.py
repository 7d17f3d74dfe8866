"""The follower: reads the logs into the view with a consumer of its own, outside any group.

It starts where the view's copy ends, reads committed records only, and begins again by itself
after trouble. A copy that does not fit the log any more is thrown away first.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from punctual_worker.console import rows, schema
from punctual_worker.console.checkpoints import Checkpoints, cursor_of
from punctual_worker.console.effects import Effects
from punctual_worker.console.logs import Logs, LogsError
from punctual_worker.console.reading import Reader
from punctual_worker.console.view import Batch, View
from punctual_worker.contract.actions import CHECKPOINT_KEY
from punctual_worker.dispatch.checkpoint import Checkpoint

_BATCH_BYTES: Final = 32_000_000
_BATCH_ROWS: Final = (100, 20_000)
_WAIT_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = (0.5, 5.0)
_TRIM_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 5.0
_UNTRUSTED: Final = {
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 confluent-kafka's public constants begin so
    KafkaError.OFFSET_OUT_OF_RANGE,
}
_log = logging.getLogger(__name__)


class UntrustedCopyError(Exception):
    """The view's copy is not a prefix of this log."""


@dataclass
class Progress:
    """How far a partition was read."""

    position: int = 0
    at_end: bool = False
    timestamp_ms: int = 0
    end: int = 0


@dataclass(frozen=True)
class Lag:
    """How far the view is behind the log."""

    records: int
    seconds: float
    complete: bool
    """Whether the log's end was reached once, so that the view can be searched."""
    trouble: str = ""

    @property
    def ready(self) -> bool:
        """Whether what the view says can be used."""
        return self.complete and not self.trouble


@dataclass
class Follower:
    """Runs in a thread of its own from `start` to `stop`."""

    logs: Logs
    checkpoints: Checkpoints
    effects: Effects
    reader: Reader
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    _progress: dict[tuple[str, int], Progress] = field(default_factory=dict)
    _applied: dict[int, Checkpoint] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _view: View | None = None
    _complete: bool = False
    _trouble: str = "starting"
    _average_bytes: float = 1_000.0
    _hide_again_at: float = 0.0
    rows_read: int = 0

    def start(self) -> None:
        """Begin to follow."""
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and let go of the files. To arrange millions of rows would be too long a wait."""
        self._stop.set()
        if self._thread is None:
            return
        self._thread.join(_STOP_SECONDS)
        while self._thread.is_alive():
            if (view := self._view) is not None:
                view.interrupt()
            self._thread.join(_STOP_SECONDS)

    @property
    def alive(self) -> bool:
        """Whether the thread is there at all."""
        return self._thread is not None and self._thread.is_alive()

    def has_read(self, topic: str, partition: int, offset: int) -> bool:
        """Whether there can be such a record: asking Kafka for another would be a long wait."""
        progress = self._progress.get((topic, partition))
        return progress is not None and offset < progress.position

    def lag(self) -> Lag:
        """How far behind, now."""
        behind = [p for p in list(self._progress.values()) if not p.at_end]
        records = sum(max(progress.end - progress.position, 0) for progress in behind)
        oldest = min((p.timestamp_ms for p in behind if p.timestamp_ms), default=self.now_ms())
        seconds = max(self.now_ms() - oldest, 0) / 1000 if records else 0.0
        trouble = self._trouble
        silent = time.monotonic() - self.checkpoints.asked_at
        if not trouble and self._complete and silent > _SILENT_SECONDS:
            trouble = f"Kafka has not answered for {silent:.0f} s"
        return Lag(records, seconds, self._complete, trouble)

    def _run(self) -> None:
        pause = _RETRY_SECONDS[0]
        while not self._stop.is_set():
            try:
                self._follow()
                return
            except UntrustedCopyError as error:
                _log.warning("the view is read again from the log: %s", error)
                schema.discard(self.logs.database)
            except sqlite3.DatabaseError as error:
                if self._stop.is_set():  # interrupted
                    return
                _log.warning("the view's database is thrown away: %s", error)
                schema.discard(self.logs.database)
                self._trouble = "the local database was damaged and is made again"
            except (KafkaException, LogsError, OSError) as error:
                self._trouble = str(error)
                _log.warning("following the logs again in %.1f s: %s", pause, error)
                self._stop.wait(pause)
                pause = min(pause * 2, _RETRY_SECONDS[1])

    def _follow(self) -> None:
        place = self.logs.describe()
        schema.open_writer(
            self.logs.database,
            identity=place.identity,
            now_ms=self.now_ms(),
            max_age_ms=place.copy_max_age_ms,
        )
        self._complete = False
        self._view = view = View(self.logs.database)
        self.reader.renew()
        consumer = self.logs.consumer()
        self.checkpoints.start(place.partitions[self.logs.actions])
        try:
            self._assign(consumer, view, place.partitions)
            self._applied, self._trouble = {}, ""
            trim_at = time.monotonic() + _TRIM_SECONDS
            while not self._stop.is_set():
                self._step(consumer, view)
                if time.monotonic() > trim_at:
                    self._trim(view, place.partitions)
                    trim_at = time.monotonic() + _TRIM_SECONDS
        finally:
            self.checkpoints.stop()
            consumer.close()
            view.close()

    def _assign(self, consumer: Consumer, view: View, partitions: dict[str, list[int]]) -> None:
        known = view.positions()
        wanted = []
        self._progress = {}
        for topic, numbers in partitions.items():
            kept = self.logs.kept.get(topic)
            for number in numbers:
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=10
                )
                start = known.get((topic, number))
                if start is not None and start > high:
                    raise UntrustedCopyError(f"{topic}/{number} ends before the copy does")
                if start is None:
                    start = max(low, high - kept // len(numbers)) if kept else OFFSET_BEGINNING
                at_end = max(start, low) >= high
                self._progress[topic, number] = Progress(max(start, low), at_end, 0, high)
                wanted.append(TopicPartition(topic, number, start))
        consumer.assign(wanted)

    def _step(self, consumer: Consumer, view: View) -> None:
        fewest, most = _BATCH_ROWS
        number = int(min(max(_BATCH_BYTES / self._average_bytes, fewest), most))
        batch, size, count = Batch(), 0, 0
        latest = self.checkpoints.latest
        for message in consumer.consume(number, _WAIT_SECONDS if self._complete else 1.0):
            error = message.error()
            if error is None:
                size += self._take(message, batch, latest)
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 a public constant
                self._reached_end(message)
            elif error.code() in _UNTRUSTED:
                raise UntrustedCopyError(error.str())
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
        if count:
            self._average_bytes = 0.5 * self._average_bytes + 0.5 * max(size / count, 100)
            self._look_at_ends(consumer)
            view.apply(batch, now_ms=self.now_ms())
            self.rows_read += count
        if not self._complete and all(p.at_end for p in self._progress.values()):
            view.make_searchable()
            self._complete = True
            _log.info("the view is complete: %d records read", self.rows_read)
        self._hide_fired(view, latest)
        self.effects.tell()

    def _take(self, message: Message, batch: Batch, latest: Any) -> int:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        key, value = message.key(), message.value()
        if topic is None or number is None or offset is None:
            return 0
        headers: Any = message.headers() or ()
        timestamp = message.timestamp()[1]
        progress = self._progress[topic, number]
        progress.position, progress.timestamp_ms, progress.at_end = offset + 1, timestamp, False
        batch.positions[topic, number] = offset + 1
        if topic == self.logs.actions:
            self._take_action(number, offset, key or b"", value, headers, batch, latest)
        elif topic == self.logs.rejections:
            rejection = rows.read_rejection(number, offset, timestamp, value, headers)
            batch.rejections.append(rejection)
            self.effects.rejected(rejection)
        elif (event := rows.read_event(number, offset, timestamp, key, value)) is not None:
            batch.events.append(event)
        return len(value or b"") + 200

    def _take_action(
        self,
        partition: int,
        offset: int,
        key: bytes,
        value: bytes | None,
        headers: Any,
        batch: Batch,
        latest: dict[int, Checkpoint],
    ) -> None:
        if key == CHECKPOINT_KEY:
            if value is not None:
                self.checkpoints.recorded(partition, value)
            return
        found = rows.read_action(partition, offset, key, value, headers)
        if isinstance(found, rows.Removal):
            batch.remove(found)
            self.effects.gone(found.action_key, found.due)
            return
        self.effects.taken(key.decode("ascii", errors="replace"), partition, offset, found)
        if found is None:
            return
        checkpoint = latest.get(partition)
        if checkpoint is None or not rows.has_fired(
            found, position=checkpoint.position, cursor=cursor_of(checkpoint)
        ):
            batch.put(found)

    def _reached_end(self, message: Message) -> None:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        progress = self._progress.get((topic or "", number if number is not None else -1))
        if progress is not None:
            progress.at_end = True
            progress.position = max(progress.position, offset or 0)

    def _look_at_ends(self, consumer: Consumer) -> None:
        for (topic, number), progress in self._progress.items():
            if not progress.at_end:
                _, high = consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
                progress.end = max(progress.end, high)

    def _hide_fired(self, view: View, latest: Any) -> None:
        """Apply the checkpoints that have moved; seldom enough not to be busy with it alone."""
        began = time.monotonic()
        if not self._complete or began < self._hide_again_at:
            return
        for partition, checkpoint in latest.items():
            if self._applied.get(partition) != checkpoint:
                view.hide_fired(
                    partition, position=checkpoint.position, cursor=cursor_of(checkpoint)
                )
                self._applied[partition] = checkpoint
        took = time.monotonic() - began
        self._hide_again_at = time.monotonic() + 4 * took

    def _trim(self, view: View, partitions: dict[str, list[int]]) -> None:
        for topic, kept in self.logs.kept.items():
            if topic in partitions:
                share = kept // len(partitions[topic])
                table = "rejections" if topic == self.logs.rejections else "events"
                view.trim(
                    table,
                    {
                        number: max(self._progress[topic, number].position - share, 0)
                        for number in partitions[topic]
                    },
                )
