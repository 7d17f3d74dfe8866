"""Spark executor pods: intake asks for them, we say how they look.

They have no rights: only intake, their driver, has a token.
"""

from typing import Any, Final

from punctual_operator.api.names import EXECUTOR, SCHEDULER_LABEL
from punctual_operator.api.types import Scheduler
from punctual_operator.resources.pods import (
    CONFIG_DIR,
    CONTAINER_SECURITY,
    POD_SECURITY,
    Defaults,
)

TEMPLATE_FILE: Final = "executor.yaml"
_CONTAINER: Final = "executor"


def executor_properties(scheduler: Scheduler, *, defaults: Defaults) -> dict[str, str]:
    """Spark's settings; the user's own win."""
    executors, template = scheduler.spec.intake.executors, scheduler.spec.pod_template
    if executors is None:
        return {}
    properties = {
        "spark.submit.deployMode": "client",
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 executors connect to the driver
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": f"{executors.memory_mebibytes}m",
        "spark.kubernetes.namespace": scheduler.namespace,
        "spark.kubernetes.container.image": executors.image or template.image or defaults.image,
        "spark.kubernetes.executor.podTemplateFile": f"{CONFIG_DIR}/{TEMPLATE_FILE}",
        "spark.kubernetes.executor.podTemplateContainerName": _CONTAINER,
        # after one was killed Spark would make the next with one slot: too few, perhaps for ever
        "spark.kubernetes.allocation.recoveryMode.enabled": "false",
        # too many failed ones end the driver; without this they would be counted all its life
        "spark.executor.failuresValidityInterval": "1h",
        # nobody else may pose as an executor, or read Kafka's secrets on their way to one
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        # what none of ours has: if Spark does not look after it, intake needs fewer rights
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }
    if policy := template.image_pull_policy or defaults.image_pull_policy:
        properties["spark.kubernetes.container.image.pullPolicy"] = policy
    if account := template.service_account_name:
        properties["spark.kubernetes.authenticate.executor.serviceAccountName"] = account
    return properties


def build_executor_template(scheduler: Scheduler) -> dict[str, Any]:
    """What Spark begins with when it makes a pod: it adds image, command, resources and folders."""
    template = scheduler.spec.pod_template
    # executors have no folder of data and no configuration
    volumes = {"tmp", *(volume["name"] for volume in template.extra_volumes)}
    container: dict[str, Any] = {
        "name": _CONTAINER,
        # jars that the driver serves are kept here
        "workingDir": "/tmp",  # noqa: S108 the container's own
        "env": list(template.extra_env),
        "securityContext": {**CONTAINER_SECURITY, **template.security_context},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 the container's own
            *(mount for mount in template.extra_volume_mounts if mount["name"] in volumes),
        ],
    }
    if scheduler.spec.intake.executors and not scheduler.spec.intake.executors.image:
        container["command"] = ["punctual"]  # as for the others; Spark adds `executor`
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {**POD_SECURITY, **template.pod_security_context},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *template.extra_volumes],
    }
    optional = {
        "imagePullSecrets": list(template.image_pull_secrets),
        "nodeSelector": template.node_selector,
        "tolerations": list(template.tolerations),
        "affinity": template.affinity,
        "topologySpreadConstraints": [
            {"labelSelector": {"matchLabels": _labels(scheduler)}, **constraint}
            for constraint in template.topology_spread_constraints
        ],
        "priorityClassName": template.priority_class_name,
    }
    spec |= {name: value for name, value in optional.items() if value}
    labels = {**template.labels, **_labels(scheduler)}
    metadata = {"labels": labels, "annotations": dict(template.annotations)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labels(scheduler: Scheduler) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "punctual",
        "app.kubernetes.io/instance": scheduler.name,
        "app.kubernetes.io/component": EXECUTOR,
        SCHEDULER_LABEL: scheduler.name,
    }
