"""Intake: one pod, replaced only when the old one has gone."""

from typing import Any, Final

from punctual_operator.api.types import Scheduler
from punctual_operator.resources.configs import config_text, part_settings
from punctual_operator.resources.executors import (
    TEMPLATE_FILE,
    build_executor_template,
    executor_properties,
)
from punctual_operator.resources.objects import fingerprint
from punctual_operator.resources.pods import Defaults, PartPods
from punctual_operator.resources.services import build_service
from punctual_operator.resources.workloads import Workload, build_config_map, build_deployment

_LEAST: Final = {"cpu": "500m", "memory": "1536Mi"}


def build_intake(
    scheduler: Scheduler, *, secrets_hash: str, defaults: Defaults
) -> list[dict[str, Any]]:
    """Two at a time would do no harm (the dispatcher drops repetitions), but twice the work."""
    settings = part_settings(scheduler, "intake")
    on_cluster = scheduler.spec.intake.executors is not None
    files: dict[str, str] = {}
    if on_cluster:
        given = settings.get("spark", {})
        settings["spark"] = executor_properties(scheduler, defaults=defaults) | given
        files[TEMPLATE_FILE] = config_text(build_executor_template(scheduler))
    pods = PartPods(
        part="intake",
        resources=scheduler.spec.intake.resources,
        least=_LEAST,
        data_volume={"emptyDir": {}},
        config_hash=fingerprint({**settings, **files}),
        secrets_hash=secrets_hash,
        # a driver tells its executors where it is; they could not resolve a pod's host name
        env=[_own("SPARK_LOCAL_HOSTNAME", "status.podIP"), _own("POD_NAME", "metadata.name")]
        if on_cluster
        else [],
        automount_token=on_cluster,
    )
    workload = Workload(replicas=1, strategy={"type": "Recreate"}, pods=pods)
    return [
        build_config_map(scheduler, pods, settings, others=files),
        build_service(scheduler, "intake", headless=True),
        build_deployment(scheduler, workload, defaults=defaults),
    ]


def _own(variable: str, field: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": field}}}
