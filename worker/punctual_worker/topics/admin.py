"""Reads topics and applies plans. The only module that administers Kafka."""

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from punctual_worker.contract.topics import TopicSpec
from punctual_worker.errors import PunctualError
from punctual_worker.topics.plan import (
    TopicPlan,
    TopicResult,
    TopicState,
    Trouble,
    plan_topics,
)

_TIMEOUT_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.1
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
_UNPROVEN: Final = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
}
_NOISE: Final = re.compile(r"^\S+/\w+: |\s*\(after \d+ms in state \w+\)")


class TopicsError(PunctualError):
    """Kafka could not be asked, or did not do as told."""

    def __init__(self, message: str, *, trouble: Trouble = "refused") -> None:
        super().__init__(message)
        self.trouble: Trouble = trouble


class TopicAdmin:
    """Describes and changes topics through one admin client."""

    def __init__(self, config: Mapping[str, Any], *, timeout: float = _TIMEOUT_SECONDS) -> None:
        """`config` is librdkafka's; nothing is connected yet."""
        self._servers = config.get("bootstrap.servers", "")
        self._timeout = timeout
        self._logins = _FailedLogins()
        mine: dict[str, Any] = {"log_level": 2, **config, "error_cb": self._logins.note}
        self._client = AdminClient(mine)
        self.cluster_id: str | None = None
        """Of the brokers that answered last."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        """Those of the named topics that exist. A listing of all creates none by accident."""
        wanted = set(names)
        self._logins.last = None
        try:
            listed = self._client.list_topics(timeout=self._timeout)
            self.cluster_id, found = listed.cluster_id, listed.topics
            present = [name for name in sorted(wanted) if name in found]
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
            answers = (
                self._client.describe_configs(resources, request_timeout=self._timeout)
                if resources
                else {}
            )
            configs = self._results(answers)
        except (KafkaException, TimeoutError) as error:
            trouble, text = self._describe(error, doing="read the topics")
            raise TopicsError(f"{text}.", trouble=trouble) from error
        return {
            name: TopicState(
                name,
                partitions=len(found[name].partitions),
                replication_factors={
                    number: len(partition.replicas)
                    for number, partition in found[name].partitions.items()
                },
                config={key: entry.value for key, entry in configs[name].items()},
                overrides=frozenset(
                    key
                    for key, entry in configs[name].items()
                    if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
                ),
            )
            for name in present
            if name in configs
        }

    def _results(self, answers: Mapping[ConfigResource, Any]) -> dict[str, Any]:
        """Configurations by topic; one that was deleted a moment ago has none."""
        configs = {}
        for resource, answer in answers.items():
            try:
                configs[resource.name] = answer.result(self._timeout)
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return configs

    def ensure(self, wanted: Sequence[TopicSpec], *, check_only: bool = False) -> list[TopicResult]:
        """Plan and apply; with `check_only` change nothing. One topic's failure stops no other."""
        plans = plan_topics(self.describe(spec.name for spec in wanted), wanted)
        if check_only:
            return [TopicResult(plan, applied=not plan.changes) for plan in plans]
        results = [self.apply(plan) for plan in plans]
        self.await_topics([r.plan.spec.name for r in results if r.plan.create and r.ok])
        return results

    def await_topics(self, names: Collection[str]) -> None:
        """Wait until what was just made is there for every client, or for as long as usual."""
        deadline = time.monotonic() + self._timeout
        while names and time.monotonic() < deadline:
            try:
                listed = self._client.list_topics(timeout=self._timeout).topics
            except KafkaException:  # who uses the topics next will tell
                return
            if all(name in listed for name in names):
                return
            time.sleep(_LOOK_SECONDS)

    def apply(self, plan: TopicPlan) -> TopicResult:
        """Do what the plan says; what Kafka says against it is in the result."""
        try:
            if plan.create:
                self._create(plan.spec)
            elif plan.repairs:
                self._alter(plan)
        except (KafkaException, TimeoutError) as error:
            doing = "create the topic" if plan.create else "change the topic's configuration"
            trouble, text = self._describe(error, doing=doing)
            return TopicResult(plan, applied=False, error=text, trouble=trouble)
        return TopicResult(plan, applied=True)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all that is in them; one that is not there is as good as deleted."""
        answers = self._client.delete_topics(list(names), operation_timeout=self._timeout)
        for name, answer in answers.items():
            try:
                answer.result(self._timeout * 2)
            except (KafkaException, TimeoutError) as error:
                if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                trouble, text = self._describe(error, doing=f"delete the topic {name}")
                raise TopicsError(f"{text}.", trouble=trouble) from error

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
            ConfigEntry(
                repair.key,
                repair.new,
                incremental_operation=(
                    AlterConfigOpType.DELETE if repair.new is None else AlterConfigOpType.SET
                ),
            )
            for repair in plan.repairs
        ]
        resource = ConfigResource(ResourceType.TOPIC, plan.spec.name, incremental_configs=entries)
        answers = self._client.incremental_alter_configs([resource], request_timeout=self._timeout)
        answers[resource].result(self._timeout * 2)

    def _describe(self, error: Exception, *, doing: str) -> tuple[Trouble, str]:
        """The kind of failure, and a sentence without its full stop: what to look at."""
        code = _code(error)
        if code is None or code in _UNREACHABLE or code in _UNPROVEN:
            self._client.poll(0)  # has what went on in the background told
            if failed := error.args[0] if code in _UNPROVEN else self._logins.last:
                return "unauthenticated", (
                    f"Kafka at {self._servers} refuses the connection "
                    f"({_without_address(failed.str())}): check the TLS and SASL settings"
                )
        if code is None:
            return "unreachable", f"Kafka at {self._servers} did not answer in time to {doing}"
        fault: KafkaError = error.args[0]
        if code in _UNREACHABLE:
            return "unreachable", (
                f"Kafka at {self._servers} cannot be reached ({fault.str()}): "
                "check that it runs, and bootstrap-servers and the TLS or SASL settings"
            )
        if code in _DENIED:
            return "denied", (
                f"This Kafka user may not {doing} ({fault.str()}): it needs Describe, "
                "DescribeConfigs, Create and AlterConfigs on the app's topics"
            )
        return "refused", f"Kafka refused to {doing}: {fault.str()}"


class _FailedLogins:
    """Why a login failed: the call that needed it only says that it timed out."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        if error.code() in _UNPROVEN:
            self.last = error


def _code(error: Exception) -> int | None:
    """Kafka's code; None if there was no answer at all."""
    return None if isinstance(error, TimeoutError) else int(error.args[0].code())


def _without_address(text: str) -> str:
    """librdkafka's words without broker names and durations, which differ from time to time."""
    return _NOISE.sub("", text)
