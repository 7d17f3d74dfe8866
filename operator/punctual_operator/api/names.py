"""Names that the operator gives and understands: groups, labels, annotations, children."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NewType

GROUP: Final = "punctual.dev"
VERSION: Final = "v1alpha1"
PLURAL: Final = "schedulers"
KIND: Final = "Scheduler"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FIELD_MANAGER: Final = "punctual-operator"
FINALIZER: Final = f"{GROUP}/delete-topics"
"""Only on Schedulers whose topics go with them: the others can be deleted without an operator."""

PAUSED: Final = f"{GROUP}/paused"
"""Annotation of a Scheduler: while it is `true`, nothing but the status is changed."""
SCHEDULER_LABEL: Final = f"{GROUP}/scheduler"
"""Label of every child: the name of its Scheduler."""
CONFIG_HASH: Final = f"{GROUP}/config-hash"
SECRETS_HASH: Final = f"{GROUP}/secrets-hash"
APPLIED_HASH: Final = f"{GROUP}/applied-hash"
"""Annotation of every child: what was applied last, so that fields we no longer want are seen."""

PartName = Literal["intake", "dispatcher", "console"]
PARTS: Final[tuple[PartName, ...]] = ("intake", "dispatcher", "console")
EXECUTOR: Final = "executor"
"""Component of the pods that Spark makes for intake."""
HTTP_PORT: Final = 8080

Fingerprint = NewType("Fingerprint", str)
"""Short digest of something whose change has to be seen."""


@dataclass(frozen=True, order=True)
class SchedulerKey:
    """Which Scheduler."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(body: Mapping[str, Any]) -> SchedulerKey:
    """The key of a Scheduler as the API server gives it."""
    return SchedulerKey(body["metadata"]["namespace"], body["metadata"]["name"])


def part_name(scheduler: str, part: PartName) -> str:
    """Name of a part's Deployment, Service and ConfigMap."""
    return f"{scheduler}-{part}"


def selector_labels(scheduler: str, part: PartName) -> dict[str, str]:
    """The labels that never change, by which pods are found."""
    return {
        "app.kubernetes.io/name": "punctual",
        "app.kubernetes.io/instance": scheduler,
        "app.kubernetes.io/component": part,
    }


def child_labels(scheduler: str, part: PartName | None = None) -> dict[str, str]:
    """The labels of every child."""
    component = {} if part is None else {"app.kubernetes.io/component": part}
    return {
        "app.kubernetes.io/name": "punctual",
        "app.kubernetes.io/instance": scheduler,
        **component,
        "app.kubernetes.io/part-of": "punctual",
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
        SCHEDULER_LABEL: scheduler,
    }


def as_selector(labels: Mapping[str, str]) -> str:
    """Labels as a query has them."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
