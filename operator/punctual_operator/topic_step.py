"""The part of a reconcile that deals with Kafka: connect, see, decide, change."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from punctual_worker.contract.topics import TopicNames
from punctual_worker.topics.plan import TopicPlan, TopicResult

from punctual_operator.api.conditions import TOPICS_READY, Condition
from punctual_operator.api.names import PartName
from punctual_operator.api.types import Scheduler
from punctual_operator.clients.kafka import ClusterView, Connection, KafkaClusters
from punctual_operator.clients.kubernetes import Kubernetes
from punctual_operator.errors import ConflictError, OperatorError, SecretKeyMissingError
from punctual_operator.plan.conflicts import find_owner
from punctual_operator.plan.topics import (
    describe_topics,
    judge_topics,
    judge_topics_error,
    plan_scheduler_topics,
)
from punctual_operator.resources.secrets import (
    kafka_secrets,
    open_properties,
    secret_names,
    secret_properties,
)

_HASH_COST = 2**12


@dataclass(frozen=True)
class SecretsView:
    """The Secrets that a Scheduler names; never shown."""

    data: Mapping[str, Mapping[str, str]] = field(repr=False)
    hashes: Mapping[PartName, str]


@dataclass(frozen=True)
class TopicsOutcome:
    """What became of the topics."""

    condition: Condition
    cluster_id: str | None = None
    described: Sequence[Mapping[str, Any]] = ()
    secrets: SecretsView | None = None
    workers_may_run: bool = False
    """Whether there are topics for workers to work on."""
    error: OperatorError | None = None
    news: Sequence[str] = ()
    """What was changed, for people."""


class SecretReader:
    """Reads Secrets, and tells by a digest that they have changed."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._digests: dict[tuple[str, str, str], str] = {}

    async def read(self, scheduler: Scheduler) -> SecretsView:
        """All that the spec names; an error says which one is missing."""
        found = {
            name: await self._kubernetes.read_secret(scheduler.namespace, name)
            for name in sorted(secret_names(scheduler.spec))
        }
        kafka = [(entry.secret, entry.key) for entry in kafka_secrets(scheduler.spec.kafka)]
        console = list(kafka)
        token = scheduler.spec.console.token_secret_ref
        if token is not None and scheduler.spec.console.state == "Enabled":
            console.append((token.name, token.key))
        for secret, key in console:
            if key not in found[secret]["data"]:
                raise SecretKeyMissingError(
                    f"The Secret {secret} has no entry {key}: add it, or correct the name in the "
                    "spec."
                )
        hashes: dict[PartName, str] = {
            "intake": self._digest(scheduler, found, kafka),
            "dispatcher": self._digest(scheduler, found, kafka),
            "console": self._digest(scheduler, found, console),
        }
        return SecretsView({name: secret["data"] for name, secret in found.items()}, hashes)

    def _digest(
        self,
        scheduler: Scheduler,
        found: Mapping[str, Mapping[str, Any]],
        entries: Sequence[tuple[str, str]],
    ) -> str:
        """Slow on purpose: it is for all to see, and nobody shall guess passwords by it."""
        if not entries:
            return ""
        versions = sorted({f"{found[s]['uid']}/{found[s]['version']}" for s, _ in entries})
        cache_key = (scheduler.uid, repr(entries), repr(versions))
        if cache_key not in self._digests:
            if len(self._digests) > 10_000:
                self._digests.clear()
            text = repr([(s, key, found[s]["data"][key]) for s, key in entries])
            digest = hashlib.scrypt(
                text.encode("utf-8", "surrogateescape"),
                salt=scheduler.uid.encode(),
                n=_HASH_COST,
                r=8,
                p=1,
                dklen=8,
            )
            self._digests[cache_key] = digest.hex()
        return self._digests[cache_key]


def connection_of(scheduler: Scheduler, secrets: SecretsView) -> Connection:
    """How to reach the Scheduler's Kafka."""
    kafka = scheduler.spec.kafka
    properties = open_properties(kafka) | secret_properties(kafka, secrets.data)
    return Connection(",".join(kafka.bootstrap_servers), properties)


class TopicStep:
    """Makes and repairs the topics of a Scheduler."""

    def __init__(
        self,
        secrets: SecretReader,
        kafka: KafkaClusters,
        others: Callable[[], Iterable[Mapping[str, Any]]],
    ) -> None:
        """`others` are all Schedulers that are known."""
        self._secrets = secrets
        self._kafka = kafka
        self._others = others

    async def run(
        self, scheduler: Scheduler, body: Mapping[str, Any], *, paused: bool
    ) -> TopicsOutcome:
        """Never raises: what went wrong is in the outcome, and what was known before stays."""
        told = body.get("status", {}).get("topics", [])
        known_cluster = body.get("status", {}).get("kafkaClusterId")
        secrets: SecretsView | None = None
        try:
            secrets = await self._secrets.read(scheduler)
            connection = connection_of(scheduler, secrets)
            view = await self._kafka.observe(connection, TopicNames(scheduler.app_id).all)
            self.check_owner(body, view.cluster_id)
            plans = plan_scheduler_topics(scheduler, view.topics, told)
            if paused:
                return _paused_outcome(plans, view, told, secrets)
            results = await self._kafka.apply(connection, plans)
            return _outcome(results, view, secrets)
        except ConflictError as error:
            return TopicsOutcome(judge_topics_error(error), described=told, error=error)
        except OperatorError as error:
            was_there = bool(told) and all("partitions" in topic for topic in told)
            return TopicsOutcome(
                judge_topics_error(error),
                cluster_id=known_cluster,
                described=told,
                secrets=secrets,
                # Kafka may be away for the operator alone; the workers go on as they are told
                workers_may_run=was_there and secrets is not None,
                error=error,
            )

    def check_owner(self, body: Mapping[str, Any], cluster_id: str | None) -> None:
        """Refuse an app id that an older Scheduler has on this cluster."""
        owner = find_owner(body, self._others(), cluster_id=cluster_id)
        if owner is not None:
            raise ConflictError(
                f"The app id belongs to the older Scheduler {owner} on this Kafka cluster: delete "
                "one of the two, or make this one anew with another appId."
            )


def _outcome(
    results: Sequence[TopicResult], view: ClusterView, secrets: SecretsView
) -> TopicsOutcome:
    there = all(result.error is None or not result.plan.create for result in results)
    news = [
        f"{result.plan.spec.name}: {'created' if result.plan.create else 'configuration repaired'}"
        for result in results
        if result.plan.changes and result.error is None
    ]
    failed = next((result for result in results if result.error is not None), None)
    condition = judge_topics(results)
    return TopicsOutcome(
        condition,
        cluster_id=view.cluster_id,
        described=describe_topics(results, view.topics),
        secrets=secrets,
        workers_may_run=there,
        error=None if failed is None else OperatorError(condition.message),
        news=news,
    )


def _paused_outcome(
    plans: Sequence[TopicPlan],
    view: ClusterView,
    told: Sequence[Mapping[str, Any]],
    secrets: SecretsView,
) -> TopicsOutcome:
    condition = judge_topics([TopicResult(plan, applied=True) for plan in plans])
    if any(plan.create for plan in plans):
        text = "Topics are missing, and are not made while the Scheduler is paused."
        condition = Condition(TOPICS_READY, "False", "Paused", text)
    return TopicsOutcome(condition, cluster_id=view.cluster_id, described=told, secrets=secrets)
