"""Services and the account of the pods."""

from typing import Any

from punctual_operator.api.names import HTTP_PORT, PartName, part_name, selector_labels
from punctual_operator.api.types import Scheduler
from punctual_operator.resources.objects import build_object


def build_service_account(scheduler: Scheduler) -> dict[str, Any]:
    """An account without rights, so that the pods do not share the namespace's default one."""
    return build_object(
        scheduler,
        api_version="v1",
        kind="ServiceAccount",
        name=scheduler.name,
        body={"automountServiceAccountToken": False},
    )


def build_service(scheduler: Scheduler, part: PartName, *, headless: bool) -> dict[str, Any]:
    """Headless where each pod is asked for itself (metrics), else one address (the console)."""
    port = {"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}
    spec: dict[str, Any] = {"selector": selector_labels(scheduler.name, part), "ports": [port]}
    if headless:
        # metrics tell most when something is wrong, so pods that are not ready count too
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return build_object(
        scheduler,
        api_version="v1",
        kind="Service",
        name=part_name(scheduler.name, part),
        part=part,
        body={"spec": spec},
    )
