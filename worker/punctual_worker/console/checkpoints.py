"""How far the dispatcher is, read from its consumer group without joining it.

The committed offset's metadata is the dispatcher's checkpoint. Fetching committed offsets is all
that happens: no membership, so the group never rebalances because of the console.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from punctual_worker.contract import actions
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch.checkpoint import Checkpoint

_EVERY_SECONDS: Final = 0.25
_ASK_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class Checkpoints:
    """Asks regularly in a thread of its own; `latest` is always a whole picture."""

    def __init__(self, config: Mapping[str, Any], *, topic: str, group_id: str) -> None:
        """`config` is librdkafka's."""
        self._config = {**config, "group.id": group_id, "enable.auto.commit": False}
        self._topic = topic
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._recorded: dict[int, Checkpoint] = {}
        self.latest: Mapping[int, Checkpoint] = {}
        self.asked_at = 0.0
        """When Kafka last answered, by the monotonic clock."""

    def start(self, partitions: Iterable[int]) -> None:
        """Begin to ask for these partitions."""
        self._stop.clear()
        self._recorded, self.latest = {}, {}
        self._thread = threading.Thread(
            target=self._run, args=(sorted(partitions),), name="checkpoints", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop asking."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def recorded(self, partition: int, text: bytes) -> None:
        """The log's own copy: counts where the group's offsets are forgotten."""
        try:
            self._recorded[partition] = checkpoints.decode(text.decode())
        except ValueError:
            _log.warning("the checkpoint record in partition %d cannot be read", partition)

    def _run(self, partitions: list[int]) -> None:
        consumer = Consumer({**self._config, "log_level": 2})
        try:
            while not self._stop.wait(_EVERY_SECONDS):
                try:
                    self.latest = self._ask(consumer, partitions)
                    self.asked_at = time.monotonic()
                except KafkaException as error:
                    _log.debug("the dispatcher's checkpoint cannot be read: %s", error)
        finally:
            consumer.close()

    def _ask(self, consumer: Consumer, partitions: list[int]) -> dict[int, Checkpoint]:
        wanted = [TopicPartition(self._topic, number) for number in partitions]
        found = dict(self._recorded)
        for answer in consumer.committed(wanted, timeout=_ASK_SECONDS):
            if answer.error is not None:
                raise KafkaException(answer.error)
            if answer.offset >= 0 and answer.metadata:
                try:
                    found[answer.partition] = checkpoints.decode(answer.metadata)
                except checkpoints.InvalidCheckpointError as error:
                    _log.warning("partition %d: %s", answer.partition, error)
        return found


def cursor_of(checkpoint: Checkpoint) -> tuple[int, str]:
    """Due time and action key up to which everything has fired."""
    key = actions.order_action_key(checkpoint.cursor)
    return checkpoint.cursor_ms, key.decode("ascii", errors="replace")
