"""What others may do to the pods: evict them, and connect to them."""

from typing import Any

from punctual_operator.api.names import (
    EXECUTOR,
    HTTP_PORT,
    SCHEDULER_LABEL,
    part_name,
    selector_labels,
)
from punctual_operator.api.types import Scheduler
from punctual_operator.resources.objects import build_object


def build_disruption_budget(scheduler: Scheduler) -> dict[str, Any]:
    """One dispatcher at a time may be drained, so that its partitions move only once."""
    return build_object(
        scheduler,
        api_version="policy/v1",
        kind="PodDisruptionBudget",
        name=part_name(scheduler.name, "dispatcher"),
        part="dispatcher",
        body={
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": selector_labels(scheduler.name, "dispatcher")},
            }
        },
    )


def build_network_policies(scheduler: Scheduler) -> list[dict[str, Any]]:
    """The port for metrics, probes and console; Spark's driver and executors reach each other."""
    if scheduler.spec.network_policy == "Disabled":
        return []
    ingress: list[dict[str, Any]] = [{"ports": [{"protocol": "TCP", "port": HTTP_PORT}]}]
    if scheduler.spec.intake.executors is not None:
        component = "app.kubernetes.io/component"
        sparks = {
            "matchLabels": {SCHEDULER_LABEL: scheduler.name},
            "matchExpressions": [
                {"key": component, "operator": "In", "values": ["intake", EXECUTOR]}
            ],
        }
        ingress.append({"from": [{"podSelector": sparks}]})
    return [
        build_object(
            scheduler,
            api_version="networking.k8s.io/v1",
            kind="NetworkPolicy",
            name=scheduler.name,
            body={
                "spec": {
                    "podSelector": {"matchLabels": {SCHEDULER_LABEL: scheduler.name}},
                    "policyTypes": ["Ingress"],
                    "ingress": ingress,
                }
            },
        )
    ]
