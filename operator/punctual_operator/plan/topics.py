"""The topics that a Scheduler wants, and what its status says about them.

What to change is decided by `punctual_worker.topics.plan`, as for `punctual topics`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from punctual_worker.contract.topics import (
    BROKERS_DEFAULT,
    CleanupPolicy,
    TopicNames,
    TopicSpec,
    topic_specs,
)
from punctual_worker.topics.plan import TopicPlan, TopicResult, TopicState, plan_topics

from punctual_operator.api.conditions import TOPICS_READY, Condition
from punctual_operator.api.types import Scheduler
from punctual_operator.errors import OperatorError

_DAY_MS: Final = 24 * 60 * 60 * 1000
_CLEANUP: Final[dict[str, CleanupPolicy]] = {"Compact": "compact", "Delete": "delete"}
_REASONS: Final = {
    "unreachable": "KafkaUnreachable",
    "unauthenticated": "AuthenticationFailed",
    "denied": "AuthorizationFailed",
    "refused": "KafkaError",
}


def wanted_topics(scheduler: Scheduler) -> list[TopicSpec]:
    """As the contract wants them, with the user's further configuration."""
    topics, names = scheduler.spec.topics, TopicNames(scheduler.app_id)
    specs = topic_specs(
        names,
        request_partitions=topics.requests.partitions,
        action_partitions=topics.actions.partitions,
        replication_factor=topics.replication_factor or BROKERS_DEFAULT,
        request_max_bytes=topics.request_max_bytes,
        history=scheduler.spec.history == "Enabled",
        requests_cleanup=_CLEANUP[topics.requests.cleanup_policy],
        rejections_cleanup=_CLEANUP[topics.rejections.cleanup_policy],
    )
    further = {
        names.requests: topics.requests.config,
        names.actions: topics.actions.config,
        names.rejections: topics.rejections.config,
        names.history: {
            "retention.ms": str(topics.history.retention_days * _DAY_MS),
            **topics.history.config,
        },
    }
    return [replace(spec, config={**spec.config, **further[spec.name]}) for spec in specs]


def plan_scheduler_topics(
    scheduler: Scheduler,
    existing: Mapping[str, TopicState],
    told: Sequence[Mapping[str, Any]],
) -> list[TopicPlan]:
    """`told` is what the status says of the topics: entries that were ours are given back."""
    released = {topic["name"]: set(topic.get("configKeys", ())) for topic in told}
    return plan_topics(existing, wanted_topics(scheduler), released=released)


def describe_topics(
    results: Sequence[TopicResult], existing: Mapping[str, TopicState]
) -> list[dict[str, Any]]:
    """The status of each topic, after the plans were applied."""
    return [_describe(result, existing.get(result.plan.spec.name)) for result in results]


def judge_topics(results: Sequence[TopicResult]) -> Condition:
    """Failures before refusals: what Kafka denies hides what cannot be changed."""
    for result in results:
        if result.error is not None:
            reason = _REASONS[result.trouble or "refused"]
            return Condition(
                TOPICS_READY, "False", reason, f"{result.plan.spec.name}: {result.error}."
            )
    if refused := [result for result in results if result.plan.refusals]:
        message = "; ".join(
            f"{result.plan.spec.name}: {refusal}"
            for result in refused
            for refusal in result.plan.refusals
        )
        return Condition(
            TOPICS_READY,
            "False",
            "ChangeRefused",
            f"{message}. The rest of the change was applied; set the field back.",
        )
    return Condition(TOPICS_READY, "True", "AsWanted", "All topics are as they should be.")


def judge_topics_error(error: OperatorError) -> Condition:
    """The topics could not even be asked for."""
    return Condition(TOPICS_READY, "False", error.reason, str(error))


def _describe(result: TopicResult, state: TopicState | None) -> dict[str, Any]:
    spec, refusals = result.plan.spec, result.plan.refusals
    topic_state: Literal["Ready", "Refused", "Failed"] = "Ready"
    message = None
    if result.error is not None:
        topic_state, message = "Failed", f"{result.error}."
    elif refusals:
        topic_state, message = "Refused", f"{'; '.join(refusals)}."
    described: dict[str, Any] = {"name": spec.name, "state": topic_state}
    if message is not None:
        described["message"] = message[:4_000]
    if state is not None:
        described["partitions"] = state.partitions
        described["replicationFactor"] = min(state.replication_factors.values(), default=0)
    elif result.error is None:
        described["partitions"] = spec.partitions
    if result.error is None:
        described["configKeys"] = sorted(spec.config)
    return described
