"""`punctual intake`: from settings to a running query, and a new one when it ends."""

import logging
import signal
import threading
import time
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from punctual_worker.errors import PunctualError
from punctual_worker.health import HealthServer
from punctual_worker.intake.checkpoints import Checkpoints
from punctual_worker.intake.offsets import GroupOffsets
from punctual_worker.intake.progress import (
    BatchProgress,
    IntakeMetrics,
    RejectionCounter,
    live_lags,
)
from punctual_worker.intake.rules import Rules, rules_from
from punctual_worker.intake.session import intake_dir, is_stopped, start_session
from punctual_worker.intake.stream import start_query
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.local.jars import jar_paths
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin, TopicsError
from punctual_worker.topics.plan import TopicState

_LOOK_SECONDS: Final = 0.2
_LAG_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = (1.0, 30.0)
_ASK_SECONDS: Final = 10.0
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
    requests = topics[settings.topics.requests]
    intake = Intake(settings, topics)
    health = HealthServer(
        intake.registry, host=settings.http_host, port=settings.http_port, ready=intake.readiness
    )
    with health:
        _log.info("metrics and health on %s", health.url)
        jars = jar_paths("spark")
        spark = start_session(settings, jars=jars, request_partitions=requests.partitions)
        # After Spark, which puts a handler of its own in place.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        try:
            return intake.serve(spark, stop)
        finally:
            spark.stop()
            _log.info("stopped")


def _topics(settings: Settings) -> dict[str, TopicState]:
    names = settings.topics
    found = TopicAdmin(librdkafka_config(settings)).describe(names.all)
    wanted = (names.requests, names.actions, names.rejections)
    if missing := [name for name in wanted if name not in found]:
        raise IntakeError(
            f"no topic {', '.join(missing)}: make them with 'punctual topics --app-id "
            f"{settings.app_id}'."
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
        self._partitions = topics[settings.topics.requests].partitions
        self._rejection_partitions = topics[settings.topics.rejections].partitions
        self._checkpoints = Checkpoints(
            intake_dir(settings),
            made_for={"topic": _topic_id(settings), "mode": settings.intake_mode},
        )
        self.registry = CollectorRegistry()
        self._metrics = IntakeMetrics(self.registry)
        self._trouble = "starting"
        self._failures_in_a_row = 0

    def readiness(self) -> tuple[bool, str]:
        """Ready while the query runs."""
        return (False, self._trouble) if self._trouble else (True, "ok")

    def serve(self, spark: SparkSession, stop: threading.Event) -> int:
        """Until told to stop; status 1 when Spark itself is gone and a new process is needed."""
        counter = RejectionCounter(
            self._settings, self._metrics, partitions=self._rejection_partitions
        )
        counter.start()
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
        offsets = GroupOffsets(self._settings, self._partitions)
        try:
            self._checkpoints.prepare()
            starting = {} if self._checkpoints.exists else offsets.start()
            if starting:
                _log.info("beginning at the group's offsets: %s", starting)
            query = start_query(
                spark,
                self._settings,
                rules=self._rules,
                starting_offsets=starting or dict.fromkeys(range(self._partitions), -2),
                checkpoint=self._checkpoints.path,
            )
            try:
                self._follow(spark, query, offsets, stop)
            finally:
                query.stop()
        finally:
            offsets.close()

    def _follow(
        self,
        spark: SparkSession,
        query: StreamingQuery,
        offsets: GroupOffsets,
        stop: threading.Event,
    ) -> None:
        progress = BatchProgress(query, offsets, self._metrics)
        next_lag = 0.0
        while not stop.wait(_LOOK_SECONDS):
            ended_one = progress.update()
            if not query.isActive:
                raise QueryEndedError(_reason(query))
            if ended_one:
                self._failures_in_a_row = 0
            if self._trouble and (ended_one or self._all_tasks_run(spark, query)):
                _log.info("taking requests in")
                self._trouble = ""
            if not self._trouble and time.monotonic() > next_lag:
                self._measure_lag(spark, progress, offsets)
                next_lag = time.monotonic() + _LAG_SECONDS
        progress.update()

    def _all_tasks_run(self, spark: SparkSession, query: StreamingQuery) -> bool:
        if self._settings.intake_mode == "micro-batch":
            return "Waiting" in query.status["message"]
        tracker = spark.sparkContext.statusTracker()
        stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
        return any(stage and stage.numActiveTasks >= self._partitions for stage in stages)

    def _measure_lag(
        self, spark: SparkSession, progress: BatchProgress, offsets: GroupOffsets
    ) -> None:
        try:
            ends = offsets.ends()
            base = progress.taken_in or {n: max(at, 0) for n, at in offsets.start().items()}
        except KafkaException as error:
            _log.warning("the lag cannot be measured: %s", error)
            return
        try:
            live = live_lags(spark, self._settings)
        except Py4JJavaError as error:  # a consumer may close between being found and being asked
            _log.debug("no live lag: %s", error.java_exception)
            live = {}
        for number, end in ends.items():
            behind = live.get(number, max(end - base.get(number, 0), 0))
            self._metrics.lag.labels(str(number)).set(behind)


def _topic_id(settings: Settings) -> str:
    name = settings.topics.requests
    # must live until the answer is there
    admin = AdminClient({"log_level": 2, **librdkafka_config(settings)})
    asked = admin.describe_topics(TopicCollection([name]), request_timeout=_ASK_SECONDS)
    return str(asked[name].result(_ASK_SECONDS).topic_id)


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return "it ended by itself" if error is None else str(error).partition("\n\n")[0]


def _told(error: Exception) -> str:
    """The reason without the JVM's stack."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    return text.partition("\n\tat ")[0][:_REASON_CHARS]
