"""Reads topics and applies plans. The only module that administers Kafka."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from punctual_worker.contract.topics import TopicSpec
from punctual_worker.errors import PunctualError
from punctual_worker.topics.plan import TopicPlan, TopicState, plan_topics

_TIMEOUT_SECONDS: Final = 15.0
_DENIED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_UNREACHABLE: Final = {
    KafkaError._TRANSPORT,  # noqa: SLF001 confluent-kafka's public constants begin like this
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
}


class TopicsError(PunctualError):
    """Kafka could not be asked, or did not do as told."""


@dataclass(frozen=True)
class TopicResult:
    """What became of one topic's plan."""

    plan: TopicPlan
    applied: bool
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the topic is as wanted now."""
        return self.error is None and not self.plan.refusals and self.applied


class TopicAdmin:
    """Describes and changes topics through one admin client."""

    def __init__(self, config: Mapping[str, Any], *, timeout: float = _TIMEOUT_SECONDS) -> None:
        """`config` is librdkafka's; nothing is connected yet."""
        self._servers = config.get("bootstrap.servers", "")
        self._timeout = timeout
        self._client = AdminClient({"log_level": 2, **config})

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        """Those of the named topics that exist. A listing of all creates none by accident."""
        wanted = set(names)
        try:
            found = self._client.list_topics(timeout=self._timeout).topics
            present = [name for name in sorted(wanted) if name in found]
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
            answers = (
                self._client.describe_configs(resources, request_timeout=self._timeout)
                if resources
                else {}
            )
            configs = {
                resource.name: {
                    key: entry.value for key, entry in answer.result(self._timeout).items()
                }
                for resource, answer in answers.items()
            }
        except (KafkaException, TimeoutError) as error:
            raise TopicsError(f"{self._describe(error, doing='read the topics')}.") from error
        return {
            name: TopicState(
                name,
                partitions=len(found[name].partitions),
                replication_factors={
                    number: len(partition.replicas)
                    for number, partition in found[name].partitions.items()
                },
                config=configs[name],
            )
            for name in present
        }

    def ensure(self, wanted: Sequence[TopicSpec], *, check_only: bool = False) -> list[TopicResult]:
        """Plan and apply; with `check_only` change nothing. One topic's failure stops no other."""
        plans = plan_topics(self.describe(spec.name for spec in wanted), wanted)
        if check_only:
            return [TopicResult(plan, applied=not plan.changes) for plan in plans]
        return [self._apply(plan) for plan in plans]

    def _apply(self, plan: TopicPlan) -> TopicResult:
        try:
            if plan.create:
                self._create(plan.spec)
            elif plan.repairs:
                self._alter(plan)
        except (KafkaException, TimeoutError) as error:
            doing = "create the topic" if plan.create else "change the topic's configuration"
            return TopicResult(plan, applied=False, error=self._describe(error, doing=doing))
        return TopicResult(plan, applied=True)

    def _create(self, spec: TopicSpec) -> None:
        new = NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=spec.replication_factor,
            config=dict(spec.config),
        )
        answers = self._client.create_topics([new], operation_timeout=self._timeout)
        try:
            answers[spec.name].result(self._timeout * 2)
        except KafkaException as error:
            # somebody else was faster: the next run repairs what differs
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _alter(self, plan: TopicPlan) -> None:
        entries = [
            ConfigEntry(repair.key, repair.new, incremental_operation=AlterConfigOpType.SET)
            for repair in plan.repairs
        ]
        resource = ConfigResource(ResourceType.TOPIC, plan.spec.name, incremental_configs=entries)
        answers = self._client.incremental_alter_configs([resource], request_timeout=self._timeout)
        answers[resource].result(self._timeout * 2)

    def _describe(self, error: Exception, *, doing: str) -> str:
        """A sentence without its full stop: what went wrong and what to look at."""
        if isinstance(error, TimeoutError):
            return f"Kafka at {self._servers} did not answer in time to {doing}"
        fault: KafkaError = error.args[0]
        if fault.code() in _UNREACHABLE:
            return (
                f"Kafka at {self._servers} cannot be reached ({fault.str()}): "
                "check that it runs, and bootstrap-servers and the TLS or SASL settings"
            )
        if fault.code() in _DENIED:
            return (
                f"This Kafka user may not {doing} ({fault.str()}): it needs Describe, "
                "DescribeConfigs, Create and AlterConfigs on the app's topics"
            )
        return f"Kafka refused to {doing}: {fault.str()}"
