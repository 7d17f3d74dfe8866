"""`punctual intake`: from settings to a running query, and a new one when it ends."""

import logging
import math
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from punctual_worker.contract.dialects import Dialect
from punctual_worker.contract.topics import MAX_REQUEST_PARTITIONS
from punctual_worker.errors import PunctualError
from punctual_worker.health import HealthServer
from punctual_worker.intake.checkpoints import Checkpoints
from punctual_worker.intake.clients import SparkClients
from punctual_worker.intake.offset_sets import Offsets
from punctual_worker.intake.offsets import GroupOffsets, Partition, Place
from punctual_worker.intake.progress import BatchProgress, IntakeMetrics, RejectionCounter
from punctual_worker.intake.replays import rejected_since
from punctual_worker.intake.rules import Rules, rules_from
from punctual_worker.intake.session import (
    intake_dir,
    is_local,
    is_stopped,
    start_session,
    task_slots,
)
from punctual_worker.intake.sources import sources_of
from punctual_worker.intake.stream import Input, start_query
from punctual_worker.intake.superseded import superseded
from punctual_worker.intake.warming import WarmUp
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.local.jars import jar_paths
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin, TopicsError
from punctual_worker.topics.plan import TopicState

_LOOK_SECONDS: Final = 0.2
_LAG_SECONDS: Final = 5.0
_SLOTS_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = (1.0, 30.0)
_ASK_SECONDS: Final = 10.0
_SEND_SECONDS: Final = 60.0
_REASON_CHARS: Final = 500
_log = logging.getLogger(__name__)


class IntakeError(PunctualError):
    """Intake cannot work here."""


class QueryEndedError(Exception):
    """The query died; the message is Spark's reason."""


_PASSING: Final = (QueryEndedError, PySparkException, Py4JJavaError, KafkaException, TopicsError)
"""What another query may get over; a Py4JJavaError is what Spark throws when it cannot start."""


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    stop = threading.Event()
    topics = _topics(settings)
    intake = Intake(settings, topics)
    health = HealthServer(
        intake.registry, host=settings.http_host, port=settings.http_port, ready=intake.readiness
    )
    with health:
        _log.info("metrics and health on %s", health.url)
        jars = jar_paths("spark")
        # Executors may be waited for, and the first process of a container has no handler of its
        # own. Spark keeps this one and takes only SIGINT's place.
        signal.signal(signal.SIGTERM, _end)
        spark = start_session(settings, jars=jars, request_partitions=intake.partitions)
        # After Spark, which puts a handler of its own in place.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        try:
            return intake.serve(spark, stop)
        finally:
            spark.stop()
            _log.info("stopped")


def _end(*_: object) -> None:
    raise SystemExit(0)


def _topics(settings: Settings) -> dict[str, TopicState]:
    names = settings.topics
    found = TopicAdmin(librdkafka_config(settings)).describe((*names.all, *settings.sources))
    wanted = (names.requests, names.actions, names.rejections)
    if missing := [name for name in wanted if name not in found]:
        raise IntakeError(
            f"no topic {', '.join(missing)}: make them with 'punctual topics --app-id "
            f"{settings.app_id}'."
        )
    if missing := [name for name in settings.sources if name not in found]:
        raise IntakeError(
            f"no topic {', '.join(missing)}, which --source names: want the topic that the "
            "producers of these requests write to."
        )
    return found


def rules_of(settings: Settings, topics: dict[str, TopicState]) -> Rules:
    """Rules of these settings and of the topics as they are, not as they should be."""
    actions, rejections = topics[settings.topics.actions], topics[settings.topics.rejections]
    limits = [int(topic.config["max.message.bytes"] or 0) for topic in (actions, rejections)]
    return rules_from(
        settings,
        action_partitions=actions.partitions,
        rejections_need_keys="compact" in (rejections.config["cleanup.policy"] or ""),
        max_message_bytes=min(limits),
    )


class Intake:
    """Lives of the query, one after the other."""

    def __init__(self, settings: Settings, topics: dict[str, TopicState]) -> None:
        """Nothing is started yet."""
        self._settings = settings
        self._rules = rules_of(settings, topics)
        counts = {name: topic.partitions for name, topic in topics.items()}
        self._sources = sources_of(settings, counts)
        self.partitions = sum(source.partitions for source in self._sources)
        """Of all topics with requests."""
        if self.partitions > MAX_REQUEST_PARTITIONS:
            raise IntakeError(
                f"the topics with requests have {self.partitions} partitions: at most "
                f"{MAX_REQUEST_PARTITIONS} can be had, because the dispatchers' checkpoints have "
                "an offset for each."
            )
        self._rejection_partitions = topics[settings.topics.rejections].partitions
        self._checkpoints = Checkpoints(intake_dir(settings))
        self.registry = CollectorRegistry()
        self._metrics = IntakeMetrics(self.registry)
        self._warm_up: WarmUp | None = None
        self._trouble = "starting"
        self._failures_in_a_row = 0

    def readiness(self) -> tuple[bool, str]:
        """Ready while a query runs whose tasks have all asked the broker for requests."""
        return (False, self._trouble) if self._trouble else (True, "ok")

    def serve(self, spark: SparkSession, stop: threading.Event) -> int:
        """Until told to stop; status 1 when Spark itself is gone and a new process is needed."""
        counter = RejectionCounter(
            self._settings, self._metrics, partitions=self._rejection_partitions
        )
        counter.start()
        if is_local(self._settings):
            self._warm_up = WarmUp(spark, self._settings, self._rules)
        try:
            while not stop.is_set():
                try:
                    self._live(spark, stop)
                except _PASSING as error:
                    if is_stopped(spark):
                        raise ConnectionError("its context has stopped") from error
                    self._after_failure(error, stop)
        except (Py4JError, ConnectionError) as error:
            _log.error("Spark is gone: %s", error)
            return 0 if stop.is_set() else 1
        finally:
            counter.stop()
        return 0

    def _after_failure(self, error: Exception, stop: threading.Event) -> None:
        self._failures_in_a_row += 1
        least, most = _PAUSE_SECONDS
        pause = min(least * 2 ** (self._failures_in_a_row - 1), most)
        reason = _told(error)
        self._trouble = f"the query died and is started again: {reason}"
        _log.warning("the query died, starting again in %.0f s: %s", pause, reason)
        # Once may be Kafka's fault. What fails twice without a batch may be the checkpoint's.
        if self._failures_in_a_row >= 2 and self._checkpoints.exists:
            self._checkpoints.put_aside("the query died twice with it")
        stop.wait(pause)

    def _live(self, spark: SparkSession, stop: threading.Event) -> None:
        """One life of the query, from where the group stands to its end."""
        topic_ids = _topic_ids(self._settings, [source.topic for source in self._sources])
        offsets = GroupOffsets(
            self._settings,
            sources=self._sources,
            topic_ids=topic_ids,
            rejection_partitions=self._rejection_partitions,
        )
        clients = SparkClients(spark, self._settings, sources=self._sources)
        try:
            self._checkpoints.prepare(
                {"topic": ",".join(topic_ids.values()), "mode": self._settings.intake_mode}
            )
            if not clients.wait_until_sent(patience=_SEND_SECONDS):
                raise QueryEndedError("Kafka does not take what the last query has to write")
            place, rejected = self._place(offsets)
            others = clients.consumer_ids()
            query = start_query(
                spark,
                self._settings,
                rules=self._rules,
                inputs=self._inputs(spark, offsets, place, rejected),
                checkpoint=self._checkpoints.path,
            )
            progress = BatchProgress(query, offsets, self._metrics, place=place, already=rejected)
            try:
                self._follow(_Life(spark, query, progress, offsets, clients, others), stop)
            finally:
                query.stop()
        finally:
            offsets.close()

    def _inputs(
        self,
        spark: SparkSession,
        offsets: GroupOffsets,
        place: Place,
        rejected: Mapping[Partition, Offsets],
    ) -> list[Input]:
        ends = Place(offsets.ends(), {}) if len(self._sources) > 1 else place
        inputs = []
        for source in self._sources:
            begins = place.requests_of(source.topic)
            over: dict[int, Offsets] = {}
            # Where Spark's own checkpoint counts, nothing is known of where it begins.
            if source.dialect is not Dialect.NATIVE and begins:
                over = superseded(
                    *(spark, self._settings, self._rules, source),
                    begins=begins,
                    ends=ends.requests_of(source.topic),
                )
            already = {one.number: o for one, o in rejected.items() if one.topic == source.topic}
            inputs.append(Input(source, begins, already, over))
        return inputs

    def _place(self, offsets: GroupOffsets) -> tuple[Place, dict[Partition, Offsets]]:
        """Where to begin, and what from there on has been rejected before."""
        if place := offsets.place():
            told = [f"{topic}/{number} {at}" for (topic, number), at in place.requests.items()]
            _log.info("beginning at the group's offsets: %s", ", ".join(told))
            self._checkpoints.begin_anew()
            return place, rejected_since(self._settings, place)
        if self._checkpoints.exists:
            _log.warning(
                "the group has no offsets, so the checkpoint counts: what was rejected since may "
                "be rejected a second time"
            )
            return Place({}, offsets.rejection_ends()), {}
        return offsets.first_place(), {}

    def _follow(self, life: "_Life", stop: threading.Event) -> None:
        sees_tasks = is_local(self._settings)
        next_lag = next_look = 0.0
        while not stop.wait(_LOOK_SECONDS):
            ended_one = life.progress.update()
            if not life.query.isActive:
                raise QueryEndedError(_reason(life.query))
            if ended_one:
                self._failures_in_a_row = 0
            if self._trouble and (ended_one or self._serves(life)):
                _log.info("taking requests in")
                self._trouble = ""
            now = time.monotonic()
            if not self._trouble and now > next_look:
                # Executors can go without the query's end: requests wait until others are there.
                if lacking := self._lacking_slots(life):
                    self._trouble = lacking
                    _log.warning("%s", lacking)
                next_look = now + _SLOTS_SECONDS
            if not self._trouble and (now > next_lag or (ended_one and not sees_tasks)):
                self._measure_lag(life)
                next_lag = now + (_LAG_SECONDS if sees_tasks else math.inf)
        life.progress.update()

    def _lacking_slots(self, life: "_Life") -> str:
        """What is to be said of executors that are not there, if any are needed."""
        if is_local(self._settings):
            return ""
        wanted = self.partitions if self._settings.intake_mode == "real-time" else 1
        found = task_slots(life.spark)
        return "" if found >= wanted else f"executors have {found} of {wanted} task slots"

    def _serves(self, life: "_Life") -> bool:
        """Whether a request would be taken in at once."""
        if self._lacking_slots(life):
            return False
        if self._settings.intake_mode == "micro-batch":
            return "Waiting" in life.query.status["message"]
        if is_local(self._settings):
            is_warm = self._warm_up is None or self._warm_up.is_over
            return is_warm and len(life.lags()) == self.partitions
        tracker = life.spark.sparkContext.statusTracker()
        stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
        return any(stage and stage.numActiveTasks >= self.partitions for stage in stages)

    def _measure_lag(self, life: "_Life") -> None:
        try:
            ends = life.offsets.ends()
        except KafkaException as error:
            _log.warning("the lag cannot be measured: %s", error)
            return
        live = life.lags()
        for one, end in ends.items():
            behind = live.get(one, max(end - life.progress.taken_in.get(one, 0), 0))
            own = one.topic == self._settings.topics.requests
            label = str(one.number) if own else f"{one.topic}/{one.number}"
            self._metrics.lag.labels(label).set(behind)


@dataclass(frozen=True)
class _Life:
    """A running query and what there is to follow it by."""

    spark: SparkSession
    query: StreamingQuery
    progress: BatchProgress
    offsets: GroupOffsets
    clients: SparkClients
    others: frozenset[str]
    """Consumers of earlier queries."""

    def lags(self) -> dict[Partition, float]:
        return self.clients.lags(but=self.others)


def _topic_ids(settings: Settings, names: list[str]) -> dict[str, str]:
    # must live until the answer is there
    admin = AdminClient({"log_level": 2, **librdkafka_config(settings)})
    asked = admin.describe_topics(TopicCollection(names), request_timeout=_ASK_SECONDS)
    try:
        return {name: str(asked[name].result(_ASK_SECONDS).topic_id) for name in names}
    except TimeoutError as error:
        raise TopicsError(f"Kafka did not describe {', '.join(names)} in time.") from error


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return "it ended by itself" if error is None else str(error).partition("\n\n")[0]


def _told(error: Exception) -> str:
    """The reason without the JVM's stack."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    return text.partition("\n\tat ")[0][:_REASON_CHARS]
