"""The console: one pod behind one address."""

from typing import Any, Final

from punctual_operator.api.types import Scheduler
from punctual_operator.resources.configs import part_settings
from punctual_operator.resources.objects import fingerprint
from punctual_operator.resources.pods import Defaults, PartPods
from punctual_operator.resources.secrets import CONSOLE_TOKEN, secret_variable
from punctual_operator.resources.services import build_service
from punctual_operator.resources.workloads import Workload, build_config_map, build_deployment

_LEAST: Final = {"cpu": "100m", "memory": "256Mi"}
_NEW_ONE_FIRST: Final = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
}


def build_console(
    scheduler: Scheduler, *, secrets_hash: str, defaults: Defaults
) -> list[dict[str, Any]]:
    """Nothing where it is switched off."""
    console = scheduler.spec.console
    if console.state == "Disabled":
        return []
    settings = part_settings(scheduler, "console")
    token = console.token_secret_ref
    pods = PartPods(
        part="console",
        resources=console.resources,
        least=_LEAST,
        data_volume={"emptyDir": {}},
        config_hash=fingerprint(settings),
        secrets_hash=secrets_hash,
        env=[secret_variable(CONSOLE_TOKEN, secret=token.name, key=token.key)] if token else [],
    )
    workload = Workload(replicas=1, strategy=_NEW_ONE_FIRST, pods=pods)
    return [
        build_config_map(scheduler, pods, settings),
        build_service(scheduler, "console", headless=False),
        build_deployment(scheduler, workload, defaults=defaults),
    ]
