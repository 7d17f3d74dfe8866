"""`punctual job audit`: what became of every request, and which of them nobody can account for.

Reads only, and joins by the request's coordinates. Safe beside a running system: what came after it
began is left out, and what is on its way is called so.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from punctual_worker.contract import actions
from punctual_worker.errors import PunctualError
from punctual_worker.jobs import evidence
from punctual_worker.jobs.fates import Fate, Knowledge, judge
from punctual_worker.jobs.offsets import Offsets, Progress, Span
from punctual_worker.jobs.session import read_committed, start_batch_session
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin
from punctual_worker.topics.plan import TopicState

_KEPT: Final = StorageLevel.MEMORY_AND_DISK
_log = logging.getLogger(__name__)


class AuditError(PunctualError):
    """The audit could not be made."""


@dataclass(frozen=True)
class Finding:
    """A request with which something is wrong, or cannot be told."""

    source: str
    problems: tuple[str, ...]
    id: str | None
    destination: str | None
    wanted_ms: int | None
    places: tuple[str, ...]
    """Where it was delivered."""


@dataclass(frozen=True)
class Report:
    """The audit's result."""

    app_id: str
    at_ms: int
    requests: int
    fates: dict[str, int]
    problems: dict[str, int]
    findings: tuple[Finding, ...]
    window_ms: tuple[int | None, int | None]
    """Timestamps of the first and last request that was looked at."""
    complete_since_ms: int
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether every request is accounted for."""
        return not self.problems


def audit(settings: Settings, *, most_findings: int = 50) -> Report:
    """Start Spark, look at everything, stop Spark."""
    topics = TopicAdmin(librdkafka_config(settings)).describe(settings.topics.all)
    for name in (settings.topics.requests, settings.topics.actions, settings.topics.rejections):
        if name not in topics:
            raise AuditError(f"There is no topic {name}: check app-id and bootstrap-servers.")
    try:
        spark = start_batch_session(settings, job="audit")
        try:
            return _Audit(spark, settings, topics).run(most_findings)
        finally:
            spark.stop()
    except (PySparkException, Py4JError) as error:
        reason = str(error).partition("\n\tat ")[0][:500]
        raise AuditError(f"Spark could not read the topics: {reason}") from error


class _Audit:
    def __init__(
        self, spark: SparkSession, settings: Settings, topics: dict[str, TopicState]
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._topics = topics
        self._names = settings.topics
        self._offsets = Offsets(settings)

    def run(self, most_findings: int) -> Report:
        progress = self._offsets.progress()
        first = self._read({self._names.requests: progress.requests})
        asked = evidence.request_facts(first).persist(_KEPT)
        logged = evidence.action_facts(self._read_topics([self._names.actions])).persist(_KEPT)
        wanted = _destinations(asked, logged) - set(self._names.all)
        found = self._offsets.existing(wanted)
        spans = self._offsets.spans(found)
        forgetful = sorted((wanted - set(found)) | self._forgetful(spans))
        gathered = self._gather(asked, logged, spans).persist(_KEPT)
        known = self._knowledge(progress, gathered, forgetful)
        judged = judge(gathered, known).persist(_KEPT)
        return self._report(judged, progress, known, most_findings)

    def _gather(
        self, asked: DataFrame, logged: DataFrame, spans: dict[str, dict[int, Span]]
    ) -> DataFrame:
        requests = self._names.requests
        refused = self._read_topics([self._names.rejections])
        facts = [
            asked,
            logged,
            evidence.rejection_facts(refused, requests_topic=requests),
            evidence.delivery_facts(self._read(spans), requests_topic=requests),
        ]
        history = self._read_topics([self._names.history] if self._has_history else [])
        facts.append(evidence.event_facts(history, requests_topic=requests))
        return evidence.gather(facts)

    @property
    def _has_history(self) -> bool:
        return self._names.history in self._topics

    def _read_topics(self, topics: Iterable[str]) -> DataFrame:
        return self._read(self._offsets.spans(topics))

    def _read(self, spans: Any) -> DataFrame:
        if any(by_partition for by_partition in spans.values()):
            return read_committed(self._spark, self._settings, spans)
        nothing = {self._names.requests: {0: Span(0, 0)}}
        return read_committed(self._spark, self._settings, nothing)

    def _forgetful(self, spans: dict[str, dict[int, Span]]) -> set[str]:
        states = TopicAdmin(librdkafka_config(self._settings)).describe(spans)
        compacted = {
            name
            for name, state in states.items()
            if "compact" in str(state.config["cleanup.policy"])
        }
        return compacted | {
            name for name, by in spans.items() if any(span.start > 0 for span in by.values())
        }

    def _knowledge(
        self, progress: Progress, gathered: DataFrame, forgetful: list[str]
    ) -> Knowledge:
        actions_topic = self._topics[self._names.actions]
        lag_ms = int(actions_topic.config.get("min.compaction.lag.ms") or 0)
        since = gathered.agg(sf.min("told_ms")).first()
        cursors = {
            number: (
                checkpoint.cursor_ms,
                actions.order_action_key(checkpoint.cursor).decode("ascii", "replace"),
            )
            for number, checkpoint in progress.checkpoints.items()
            if checkpoint.cursor
        }
        return Knowledge(
            request_ends={number: span.end for number, span in progress.requests.items()},
            taken_in=progress.taken_in,
            seen={
                (number, partition): offset
                for number, checkpoint in progress.checkpoints.items()
                for partition, offset in checkpoint.watermarks.get(
                    actions.NATIVE_SOURCE, {}
                ).items()
            },
            positions={n: checkpoint.position for n, checkpoint in progress.checkpoints.items()},
            cursors=cursors,
            action_partitions=actions_topic.partitions,
            actions_complete_since_ms=progress.at_ms - lag_ms,
            history_since_ms=None if since is None else since[0],
            forgetful_destinations=forgetful,
            traced=self._settings.trace_headers,
        )

    def _report(self, judged: DataFrame, progress: Progress, known: Knowledge, most: int) -> Report:
        fates = {row["fate"]: row["count"] for row in judged.groupBy("fate").count().collect()}
        wrong = judged.where(sf.size("problems") > 0)
        each = wrong.select(sf.explode("problems").alias("problem")).groupBy("problem").count()
        times = judged.agg(sf.min("requested_ms"), sf.max("requested_ms")).first()
        listed = wrong.orderBy("requested_ms", "partition", "offset").limit(most).collect()
        return Report(
            app_id=self._settings.app_id,
            at_ms=progress.at_ms,
            requests=sum(fates.values()),
            fates={fate.value: fates[fate.value] for fate in Fate if fate.value in fates},
            problems={row["problem"]: row["count"] for row in each.collect()},
            findings=tuple(self._finding(row) for row in listed),
            window_ms=(None, None) if times is None else (times[0], times[1]),
            complete_since_ms=known.actions_complete_since_ms,
            notes=tuple(self._notes(known, fates)),
        )

    def _finding(self, row: Any) -> Finding:
        topic = self._names.requests if row["tag"] == actions.NATIVE_SOURCE else row["tag"]
        return Finding(
            source=f"{topic}/{row['partition']}/{row['offset']}",
            problems=tuple(row["problems"]),
            id=row["id"],
            destination=row["destination"],
            wanted_ms=row["wanted_ms"],
            places=tuple(sorted(delivery["place"] for delivery in row["delivered"])),
        )

    def _notes(self, known: Knowledge, fates: dict[str, int]) -> Iterable[str]:
        if known.history_since_ms is None:
            yield (
                "There is no history: cancelled, replaced and unchanged are derived from the later"
                " and earlier requests of the same id."
            )
        if not known.traced:
            yield "Trace headers are off: deliveries cannot be matched with requests."
        if unserved := set(range(known.action_partitions)) - set(known.positions):
            yield (
                "The dispatcher has no committed checkpoint for actions partitions"
                f" {sorted(unserved)}: what is in them counts as in flight."
            )
        if fates.get(Fate.UNPROVABLE):
            yield (
                "What cannot be told: the evidence is compacted away, its destination does not keep"
                " everything, or it was due before the request came that could have removed it."
            )


def _destinations(asked: DataFrame, logged: DataFrame) -> set[str]:
    named = asked.select(sf.col("requested_destination").alias("name")).union(
        logged.select("destination")
    )
    return {row["name"] for row in named.distinct().collect() if row["name"]}
