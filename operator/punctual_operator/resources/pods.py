"""What the pods of all parts have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from punctual_operator.api.names import (
    CONFIG_HASH,
    HTTP_PORT,
    SCHEDULER_LABEL,
    SECRETS_HASH,
    PartName,
    part_name,
    selector_labels,
)
from punctual_operator.api.types import Resources, Scheduler
from punctual_operator.resources.configs import CONFIG_FILE
from punctual_operator.resources.secrets import kafka_secrets, secret_variable

CONFIG_DIR: Final = "/etc/punctual"
DATA_DIR: Final = "/var/lib/punctual"
_GROUP: Final = 65532
"""Group of mounted volumes: whoever the image runs as may write to them."""
POD_SECURITY: Final = {
    "runAsNonRoot": True,
    "fsGroup": _GROUP,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


@dataclass(frozen=True)
class Defaults:
    """What the operator's settings say where a Scheduler does not."""

    image: str
    image_pull_policy: str = ""


@dataclass(frozen=True)
class PartPods:
    """What is special about the pods of one part."""

    part: PartName
    resources: Resources
    least: Mapping[str, str]
    """Requests of a container for which the spec says nothing."""
    data_volume: Mapping[str, Any]
    config_hash: str
    secrets_hash: str
    env: Sequence[Mapping[str, Any]] = ()
    automount_token: bool = False


def build_pod_template(
    scheduler: Scheduler, pods: PartPods, *, defaults: Defaults
) -> dict[str, Any]:
    """The template of a Deployment."""
    template = scheduler.spec.pod_template
    own_labels = selector_labels(scheduler.name, pods.part)
    annotations = {**template.annotations, CONFIG_HASH: pods.config_hash}
    if pods.secrets_hash:
        annotations[SECRETS_HASH] = pods.secrets_hash
    spec: dict[str, Any] = {
        "serviceAccountName": template.service_account_name or scheduler.name,
        "automountServiceAccountToken": pods.automount_token,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds,
        "securityContext": {**POD_SECURITY, **template.pod_security_context},
        "containers": [_container(scheduler, pods, defaults)],
        "volumes": [
            {"name": "config", "configMap": {"name": part_name(scheduler.name, pods.part)}},
            {"name": "data", **pods.data_volume},
            {"name": "tmp", "emptyDir": {}},
            *template.extra_volumes,
        ],
    }
    optional = {
        "imagePullSecrets": list(template.image_pull_secrets),
        "nodeSelector": template.node_selector,
        "tolerations": list(template.tolerations),
        "affinity": template.affinity,
        "topologySpreadConstraints": _spread(scheduler, pods.part),
        "priorityClassName": template.priority_class_name,
    }
    spec |= {name: value for name, value in optional.items() if value}
    labels = {**template.labels, **own_labels, SCHEDULER_LABEL: scheduler.name}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _container(scheduler: Scheduler, pods: PartPods, defaults: Defaults) -> dict[str, Any]:
    template = scheduler.spec.pod_template
    container: dict[str, Any] = {
        "name": pods.part,
        "image": template.image or defaults.image,
        "command": ["punctual", pods.part],
        "args": ["--config", f"{CONFIG_DIR}/{CONFIG_FILE}"],
        "env": _env(scheduler, pods),
        "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
        # The first answer may take a while (Spark); after that a worker that is silent is dead.
        "startupProbe": _probe("/livez", period=1, failures=180),
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=1, failures=3),
        "resources": _resources(pods),
        "securityContext": {**CONTAINER_SECURITY, **template.security_context},
        # so that the status of a Scheduler can tell why a worker ended
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
            {"name": "data", "mountPath": DATA_DIR},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 the container's own
            *template.extra_volume_mounts,
        ],
    }
    if policy := template.image_pull_policy or defaults.image_pull_policy:
        container["imagePullPolicy"] = policy
    return container


def _env(scheduler: Scheduler, pods: PartPods) -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = [
        {"name": "PUNCTUAL_DATA_DIR", "value": DATA_DIR},
        {"name": "PUNCTUAL_HTTP_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "PUNCTUAL_HTTP_PORT", "value": str(HTTP_PORT)},
        *(
            secret_variable(entry.variable, secret=entry.secret, key=entry.key)
            for entry in kafka_secrets(scheduler.spec.kafka)
        ),
        *(dict(variable) for variable in pods.env),
    ]
    taken = {variable["name"] for variable in own}
    extra = [v for v in scheduler.spec.pod_template.extra_env if v["name"] not in taken]
    return own + extra


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _resources(pods: PartPods) -> dict[str, Any]:
    given = {
        name: dict(amounts)
        for name, amounts in (
            ("requests", pods.resources.requests),
            ("limits", pods.resources.limits),
        )
        if amounts
    }
    return given or {"requests": dict(pods.least)}


def _spread(scheduler: Scheduler, part: PartName) -> list[dict[str, Any]]:
    selector = {"matchLabels": selector_labels(scheduler.name, part)}
    template = scheduler.spec.pod_template
    if template.topology_spread_constraints:
        return [{"labelSelector": selector, **c} for c in template.topology_spread_constraints]
    if part != "dispatcher" or template.affinity:
        return []
    return [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
        }
    ]
