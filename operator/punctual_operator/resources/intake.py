"""Intake: one pod, replaced only when the old one has gone."""

from typing import Any, Final

from punctual_operator.api.types import Scheduler
from punctual_operator.resources.configs import part_settings
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
    own_address = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    pods = PartPods(
        part="intake",
        resources=scheduler.spec.intake.resources,
        least=_LEAST,
        data_volume={"emptyDir": {}},
        config_hash=fingerprint(settings),
        secrets_hash=secrets_hash,
        # a driver tells its executors where it is; they could not resolve a pod's host name
        env=[{"name": "SPARK_LOCAL_HOSTNAME", **own_address}] if on_cluster else [],
        automount_token=on_cluster,
    )
    workload = Workload(replicas=1, strategy={"type": "Recreate"}, pods=pods)
    return [
        build_config_map(scheduler, pods, settings),
        build_service(scheduler, "intake", headless=True),
        build_deployment(scheduler, workload, defaults=defaults),
    ]
