"""From what was seen to the conditions of a Scheduler."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from punctual_operator.api.conditions import (
    CONSOLE_READY,
    DEGRADED,
    DISPATCHERS_READY,
    INTAKE_READY,
    PAUSED,
    READY,
    Condition,
)
from punctual_operator.api.names import PAUSED as PAUSED_ANNOTATION
from punctual_operator.api.names import PartName
from punctual_operator.errors import OperatorError
from punctual_operator.plan.figures import Sample
from punctual_operator.plan.pods import Unready

_CONDITION_OF: Final[dict[PartName, str]] = {
    "intake": INTAKE_READY,
    "dispatcher": DISPATCHERS_READY,
    "console": CONSOLE_READY,
}


@dataclass(frozen=True)
class PartFacts:
    """What was seen of one part."""

    wanted: int | None
    """Pods; None where the part is switched off."""
    deployment: Mapping[str, Any] | None = None
    unready: Unready = field(default_factory=Unready)


@dataclass(frozen=True)
class Facts:
    """What was seen of a Scheduler."""

    topics: Condition
    parts: Mapping[PartName, PartFacts]
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """By pod, of the dispatchers."""
    paused: bool = False
    children_error: OperatorError | None = None
    """Why the workers could not be made or changed."""


def decide_conditions(facts: Facts) -> list[Condition]:
    """All conditions, the summary first."""
    parts = {part: _judge_part(part, facts.parts[part]) for part in _CONDITION_OF}
    degraded = _judge_degraded(facts, parts)
    conditions = [
        _judge_ready(facts, parts),
        facts.topics,
        *parts.values(),
        degraded,
    ]
    if facts.paused:
        text = f"Nothing is changed while the annotation {PAUSED_ANNOTATION} is true."
        conditions.append(Condition(PAUSED, "True", "Annotated", text))
    return conditions


def ready_pods(deployment: Mapping[str, Any] | None) -> int:
    """Pods that serve, of the current or an earlier template."""
    return int((deployment or {}).get("status", {}).get("readyReplicas", 0))


def _judge_part(part: PartName, facts: PartFacts) -> Condition:
    kind = _CONDITION_OF[part]
    if facts.wanted is None:
        return Condition(kind, "True", "Disabled", f"No {part} is wanted.")
    if facts.deployment is None:
        return Condition(kind, "False", "NotCreated", f"There is no Deployment for {part} yet.")
    if facts.wanted == 0:
        text = f"No {part} is wanted: nothing is delivered until it is scaled up."
        return Condition(kind, "False", "ScaledToZero", text)
    status = facts.deployment.get("status", {})
    seen = status.get("observedGeneration", 0) >= facts.deployment["metadata"].get("generation", 0)
    ready, updated = ready_pods(facts.deployment), int(status.get("updatedReplicas", 0))
    if ready < facts.wanted:
        found = f"{ready} of {facts.wanted} pods are ready"
        text = "; ".join([found, *facts.unready.troubles, *facts.unready.hints])
        reason = "PodsNotReady" if facts.unready.troubles else "Starting"
        return Condition(kind, "False", reason, f"{text}.")
    if not seen or updated < facts.wanted or int(status.get("replicas", 0)) > facts.wanted:
        text = "; ".join(["Pods are being replaced", *facts.unready.troubles])
        return Condition(kind, "True", "RollingOut", f"{text}.")
    return Condition(kind, "True", "Available", "All pods are ready.")


def _judge_ready(facts: Facts, parts: Mapping[PartName, Condition]) -> Condition:
    if facts.topics.status != "True":
        return Condition(READY, "False", facts.topics.reason, facts.topics.message)
    if facts.children_error is not None:
        return Condition(READY, "False", facts.children_error.reason, str(facts.children_error))
    if parts["intake"].status != "True":
        return Condition(READY, "False", f"Intake{parts['intake'].reason}", _of("Intake", parts))
    if parts["dispatcher"].status != "True" and not ready_pods(
        facts.parts["dispatcher"].deployment
    ):
        reason = f"Dispatchers{parts['dispatcher'].reason}"
        return Condition(READY, "False", reason, _of("Dispatchers", parts))
    return Condition(READY, "True", "Serving", "Requests are taken in and messages delivered.")


def _of(who: str, parts: Mapping[PartName, Condition]) -> str:
    part: PartName = "intake" if who == "Intake" else "dispatcher"
    return f"{who}: {parts[part].message}"


def _judge_degraded(facts: Facts, parts: Mapping[PartName, Condition]) -> Condition:
    problems = list(_problems(facts, parts))
    if not problems:
        return Condition(DEGRADED, "False", "AsExpected", "Nothing needs attention.")
    return Condition(DEGRADED, "True", problems[0][0], " ".join(text for _, text in problems))


def _problems(facts: Facts, parts: Mapping[PartName, Condition]) -> Iterator[tuple[str, str]]:
    if facts.topics.status != "True":
        yield facts.topics.reason, facts.topics.message
    if facts.children_error is not None:
        yield facts.children_error.reason, str(facts.children_error)
    lost = sorted({p for sample in facts.samples.values() for p in sample.lost_partitions}, key=int)
    if lost:
        yield (
            "CheckpointLost",
            f"Nobody knows what was delivered from partition {', '.join(lost)} of the actions "
            "topic: set dispatchers.onLostCheckpoint to Deliver until they serve, then back.",
        )
    for part, condition in parts.items():
        if condition.reason == "PodsNotReady":
            yield f"{part.capitalize()}PodsNotReady", f"{part}: {condition.message}"
    if any(sample.overdue for sample in facts.samples.values()):
        yield (
            "MessagesOverdue",
            "Messages are more than a second late: see whether dispatchers are short of CPU or "
            "a destination does not answer, and scale them up if they are not.",
        )
