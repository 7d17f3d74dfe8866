"""`punctual dispatcher`: from settings to a running loop, and a new one when it breaks."""

import fcntl
import logging
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import IO, Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from punctual_worker.dispatch import garbage
from punctual_worker.dispatch.destinations import Destinations
from punctual_worker.dispatch.fencing import Fencing
from punctual_worker.dispatch.group import Group
from punctual_worker.dispatch.loop import Loop, Parts
from punctual_worker.dispatch.metrics import DispatchMetrics
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.producing import PartitionCount
from punctual_worker.dispatch.store import now_ms
from punctual_worker.dispatch.takeover import LogLocation, Restorer
from punctual_worker.dispatch.writing import (
    AtLeastOnceWriter,
    BrokenError,
    ExactlyOnceWriter,
    TombstoneWriter,
    Writer,
    anything_left_behind,
)
from punctual_worker.errors import PunctualError
from punctual_worker.health import HealthServer
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.logs import kafka_logger
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin, TopicsError
from punctual_worker.topics.plan import TopicState

_ASK_SECONDS: Final = 10
_SWITCH_SECONDS: Final = 0.0005
"""So long a thread goes on while another one, whose call to Kafka has come back, wants its turn."""
_PAUSE_SECONDS: Final = (0.2, 5.0)
_SHORT_LAG_MS: Final = 600_000
_CLOCK_MARGIN_MS: Final = 300_000
_log = logging.getLogger(__name__)


class DispatcherError(PunctualError):
    """The dispatcher cannot work here."""


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    directory = settings.data_dir / "dispatcher" / settings.app_id
    garbage.search_by_hand()
    garbage.keep_buffers()
    sys.setswitchinterval(_SWITCH_SECONDS)
    with _claim(directory):
        Dispatcher(settings, directory).serve(stop)
    if anything_left_behind():
        logging.shutdown()
        os._exit(0)  # the ordinary end would wait for a client that does not answer
    return 0


class Dispatcher:
    """Lives of the loop, one after the other, behind one health server."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._config = {
            "log_level": 3,
            **librdkafka_config(settings, client_id=f"{settings.app_id}-dispatcher"),
        }
        self._writer_id = f"{settings.app_id}-dispatcher-{_instance(directory)}"
        self._registry = CollectorRegistry()
        self._metrics = DispatchMetrics(self._registry)
        self._admin = AdminClient(self._config, logger=kafka_logger())
        self._loop: Loop | None = None
        self._trouble = "starting"

    def serve(self, stop: threading.Event) -> None:
        """Until told to stop."""
        health = HealthServer(
            self._registry,
            host=self._settings.http_host,
            port=self._settings.http_port,
            ready=self._readiness,
        )
        with health:
            _log.info("metrics and health on %s", health.url)
            pause = _PAUSE_SECONDS[0]
            while not stop.is_set():
                began = time.monotonic()
                try:
                    self._live(stop)
                except (BrokenError, KafkaException, TopicsError) as error:
                    self._trouble = str(error)
                    if time.monotonic() - began > 30:
                        pause = _PAUSE_SECONDS[0]
                    _log.warning("starting over in %.1f s: %s", pause, error)
                    stop.wait(pause)
                    pause = min(pause * 2, _PAUSE_SECONDS[1])
        _log.info("stopped")

    def _live(self, stop: threading.Event) -> None:
        loop = self._new_loop()
        self._loop = loop
        try:
            while not stop.is_set():
                loop.step()
        finally:
            self._loop = None
            loop.close()

    def _readiness(self) -> tuple[bool, str]:
        loop = self._loop
        return (False, self._trouble) if loop is None else loop.readiness

    def _new_loop(self) -> Loop:
        settings, topics = self._settings, self._settings.topics
        states = TopicAdmin(self._config).describe(topics.all)
        missing = [t for t in (topics.actions, topics.rejections) if t not in states]
        if settings.history and topics.history not in states:
            missing.append(topics.history)
        if missing:
            raise TopicsError(
                f"no topic {', '.join(missing)}: make them with 'punctual topics --app-id"
                f" {settings.app_id}'"
            )
        actions = states[topics.actions]
        policy = Policy(
            requests_topic=topics.requests,
            writer=self._writer_id,
            trace=settings.trace_headers,
            history=settings.history,
            attempts=settings.delivery_attempts,
            backoff_ms=settings.retry_backoff_ms,
            compaction_lag_ms=_safe_lag_ms(_milliseconds(actions, "min.compaction.lag.ms")),
        )
        location = LogLocation(
            topic=topics.actions,
            topic_id=self._topic_id(topics.actions),
            group_id=f"{settings.app_id}-dispatcher",
            stores=self._directory,
            store_max_age_ms=_milliseconds(actions, "delete.retention.ms") // 2,
        )
        destinations = Destinations(self._list_partitions, now_ms)
        writer = self._new_writer(states[topics.rejections], destinations.count)
        group = Group(
            self._config,
            topic=topics.actions,
            group_id=location.group_id,
            name=self._writer_id,
            session_timeout_ms=settings.session_timeout_ms,
        )
        exactly_once = settings.guarantee == "exactly-once"
        parts = Parts(
            group=group,
            writer=writer,
            sweeper=TombstoneWriter(self._config, topics=topics),
            restorer=Restorer(
                self._config,
                location=location,
                policy=policy,
                fencing=Fencing(
                    self._config,
                    group_id=location.group_id,
                    own=self._writer_id,
                    transaction_timeout_ms=settings.transaction_timeout_ms,
                ),
                fences_the_gone=exactly_once,  # others may lack the right, and leave nothing open
                deliver_if_lost=settings.on_lost_checkpoint == "deliver",
            ),
            destinations=destinations,
            metrics=self._metrics,
            group_token=(lambda: group.metadata) if exactly_once else (lambda: group.consumer),
            turn_max_records=settings.turn_max_records,
        )
        return Loop(parts)

    def _new_writer(self, rejections: TopicState, count_of: PartitionCount) -> Writer:
        settings = self._settings
        compacted = "compact" in rejections.config.get("cleanup.policy", "")
        if settings.guarantee == "at-least-once":
            return AtLeastOnceWriter(
                self._config,
                topics=settings.topics,
                rejections_compacted=compacted,
                count_of=count_of,
            )
        return ExactlyOnceWriter(
            self._config,
            topics=settings.topics,
            name=self._writer_id,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            rejections_compacted=compacted,
            count_of=count_of,
        )

    def _topic_id(self, topic: str) -> str:
        """Changes when a topic is deleted and made again: then its local stores are worthless."""
        answers = self._admin.describe_topics(
            TopicCollection([topic]), request_timeout=_ASK_SECONDS
        )
        try:
            return str(answers[topic].result(_ASK_SECONDS).topic_id)
        except TimeoutError as error:
            raise TopicsError(f"Kafka did not describe {topic} in time.") from error

    def _list_partitions(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=_ASK_SECONDS)
        return {name: len(topic.partitions) for name, topic in listed.topics.items()}


def _claim(directory: Path) -> IO[Any]:
    """Two dispatchers in one directory would fence each other for ever."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise DispatcherError(f"The dispatcher's directory cannot be written: {error}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DispatcherError(
            f"The directory {directory} is in use by another dispatcher: give this one another "
            "--data-dir."
        ) from None
    return lock


def _instance(directory: Path) -> str:
    """Names this dispatcher for as long as it keeps its directory: after a crash its successor
    there aborts what it left open at once."""
    path = directory / "instance"
    if not path.exists():
        path.write_text(uuid.uuid4().hex)
    return path.read_text().strip()


def _milliseconds(state: TopicState, key: str) -> int:
    return int(state.config.get(key) or 0)


def _safe_lag_ms(lag_ms: int) -> int:
    """A little less than the broker's, because clocks differ; what lies between is delivered."""
    if lag_ms < _SHORT_LAG_MS:
        _log.warning(
            "min.compaction.lag.ms of the actions topic is %d: what intake repeats after so"
            " short a time cannot be told from new requests and is delivered again",
            lag_ms,
        )
    return lag_ms - min(lag_ms // 10, _CLOCK_MARGIN_MS)
