"""The whole status of a Scheduler, and whether it is worth writing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from punctual_operator.api.conditions import Condition, merge_conditions
from punctual_operator.api.names import as_selector, selector_labels
from punctual_operator.plan.figures import FIGURES


@dataclass(frozen=True)
class Findings:
    """All that a reconcile has found out."""

    conditions: Sequence[Condition]
    app_id: str
    cluster_id: str | None
    topics: Sequence[Mapping[str, Any]]
    figures: Mapping[str, Any]
    dispatchers: Mapping[str, Any] | None
    """The dispatchers' Deployment."""


def build_status(body: Mapping[str, Any], findings: Findings, *, now: str) -> dict[str, Any]:
    """From the status as it is to the status as it should be."""
    old = body.get("status") or {}
    generation = body["metadata"].get("generation", 0)
    deployment = (findings.dispatchers or {}).get("status", {})
    status: dict[str, Any] = {
        "conditions": merge_conditions(
            old.get("conditions", ()), findings.conditions, generation=generation, now=now
        ),
        "observedGeneration": generation,
        "appId": findings.app_id,
        "replicas": int(deployment.get("replicas", 0)),
        "readyReplicas": int(deployment.get("readyReplicas", 0)),
        "selector": as_selector(selector_labels(body["metadata"]["name"], "dispatcher")),
        **findings.figures,
    }
    if findings.cluster_id is not None:
        status["kafkaClusterId"] = findings.cluster_id
    if findings.topics:
        status["topics"] = [dict(topic) for topic in findings.topics]
    return status


def is_worth_writing(
    old: Mapping[str, Any], new: Mapping[str, Any], *, seconds_since_write: float, least: float
) -> bool:
    """Figures move all the time, and everybody who watches gets every write: they wait a while."""
    if _without_figures(old) != _without_figures(new):
        return True
    return dict(old) != dict(new) and seconds_since_write >= least


def _without_figures(status: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name not in FIGURES}
