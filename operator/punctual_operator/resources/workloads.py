"""A part's Deployment and the ConfigMap that it mounts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from punctual_operator.api.names import part_name, selector_labels
from punctual_operator.api.types import Scheduler
from punctual_operator.resources.configs import CONFIG_FILE, config_text
from punctual_operator.resources.objects import build_object
from punctual_operator.resources.pods import Defaults, PartPods, build_pod_template


@dataclass(frozen=True)
class Workload:
    """How many pods, and how they are replaced."""

    replicas: int
    strategy: Mapping[str, Any]
    pods: PartPods


def build_config_map(
    scheduler: Scheduler,
    pods: PartPods,
    settings: dict[str, Any],
    *,
    others: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The part's settings, and other files beside them; nothing secret is in them."""
    return build_object(
        scheduler,
        api_version="v1",
        kind="ConfigMap",
        name=part_name(scheduler.name, pods.part),
        part=pods.part,
        body={"data": {CONFIG_FILE: config_text(settings), **(others or {})}},
    )


def build_deployment(
    scheduler: Scheduler, workload: Workload, *, defaults: Defaults
) -> dict[str, Any]:
    """The part's pods."""
    part = workload.pods.part
    return build_object(
        scheduler,
        api_version="apps/v1",
        kind="Deployment",
        name=part_name(scheduler.name, part),
        part=part,
        body={
            "spec": {
                "replicas": workload.replicas,
                "revisionHistoryLimit": 3,
                "selector": {"matchLabels": selector_labels(scheduler.name, part)},
                "strategy": dict(workload.strategy),
                "template": build_pod_template(scheduler, workload.pods, defaults=defaults),
            }
        },
    )
