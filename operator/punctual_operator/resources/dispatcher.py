"""Dispatchers: as many as are wanted, replaced one by one."""

from typing import Any, Final

from punctual_operator.api.types import Scheduler, Storage
from punctual_operator.resources.configs import part_settings
from punctual_operator.resources.objects import fingerprint
from punctual_operator.resources.pods import Defaults, PartPods
from punctual_operator.resources.services import build_service
from punctual_operator.resources.workloads import Workload, build_config_map, build_deployment

_LEAST: Final = {"cpu": "200m", "memory": "512Mi"}
_ONE_BY_ONE: Final = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
}


def build_dispatchers(
    scheduler: Scheduler, *, secrets_hash: str, defaults: Defaults
) -> list[dict[str, Any]]:
    """A new one takes partitions over before an old one goes."""
    settings = part_settings(scheduler, "dispatcher")
    dispatchers = scheduler.spec.dispatchers
    pods = PartPods(
        part="dispatcher",
        resources=dispatchers.resources,
        least=_LEAST,
        data_volume=_volume(dispatchers.storage),
        config_hash=fingerprint(settings),
        secrets_hash=secrets_hash,
    )
    workload = Workload(replicas=dispatchers.replicas, strategy=_ONE_BY_ONE, pods=pods)
    return [
        build_config_map(scheduler, pods, settings),
        build_service(scheduler, "dispatcher", headless=True),
        build_deployment(scheduler, workload, defaults=defaults),
    ]


def _volume(storage: Storage) -> dict[str, Any]:
    """A claim of its own for each pod that goes with it: the content is a cache."""
    if storage.storage_class_name is None:
        return {"emptyDir": {"sizeLimit": storage.size}}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage.storage_class_name,
        "resources": {"requests": {"storage": storage.size}},
    }
    return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
