"""Everything that should exist in the cluster for a Scheduler."""

from collections.abc import Mapping
from typing import Any

from punctual_operator.api.names import PartName
from punctual_operator.api.types import Scheduler
from punctual_operator.resources.console import build_console
from punctual_operator.resources.dispatcher import build_dispatchers
from punctual_operator.resources.intake import build_intake
from punctual_operator.resources.pods import Defaults
from punctual_operator.resources.policies import build_disruption_budget, build_network_policies
from punctual_operator.resources.services import build_service_account


def build_children(
    scheduler: Scheduler, *, secret_hashes: Mapping[PartName, str], defaults: Defaults
) -> list[dict[str, Any]]:
    """In the order in which they are needed."""
    accounts = (
        []
        if scheduler.spec.pod_template.service_account_name
        else [build_service_account(scheduler)]
    )
    return [
        *accounts,
        *build_network_policies(scheduler),
        build_disruption_budget(scheduler),
        *build_dispatchers(
            scheduler, secrets_hash=secret_hashes.get("dispatcher", ""), defaults=defaults
        ),
        *build_intake(scheduler, secrets_hash=secret_hashes.get("intake", ""), defaults=defaults),
        *build_console(scheduler, secrets_hash=secret_hashes.get("console", ""), defaults=defaults),
    ]
