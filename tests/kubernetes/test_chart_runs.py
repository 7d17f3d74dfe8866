"""The chart's own pods run with the chart's own account: its rights are enough, and two are one."""

import uuid
from typing import Any

import pytest
from punctual_worker.local.broker import EmbeddedBroker
from support.eventually import eventually
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.helm import CHART, Helm
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.node import LocalNode


@pytest.fixture
def watched(control_plane: ControlPlane, node: LocalNode) -> Any:
    """A namespace for Schedulers; the workers there are only said to be ready."""
    name = f"watched-{uuid.uuid4().hex[:6]}"
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")
    node.clear(name)


def scheduler(app_id: str, broker: EmbeddedBroker) -> dict[str, Any]:
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "Scheduler",
        "metadata": {"name": app_id},
        "spec": {
            "kafka": {"bootstrapServers": [broker.bootstrap_servers]},
            "topics": {"requests": {"partitions": 1}, "actions": {"partitions": 1}},
        },
    }


def holder(kubectl: Kubectl, lease: str) -> str:
    found = kubectl.find("lease", lease) or {}
    return str(found.get("spec", {}).get("holderIdentity") or "")


@pytest.mark.parametrize("cluster_wide", [False, True], ids=["one namespace", "cluster-wide"])
def test_two_operators_run_with_the_charts_rights_and_one_takes_over_from_the_other(
    cluster_helm: Helm,
    kubectl: Kubectl,
    node: LocalNode,
    live_namespace: str,
    watched: str,
    broker: EmbeddedBroker,
    app_id: str,
    cluster_wide: bool,
) -> None:
    values = {
        "crds": {"enabled": False},
        "fullnameOverride": live_namespace,
        "replicaCount": 2,
        "watchNamespaces": [] if cluster_wide else [watched],
        "operator": {"leaseSeconds": 6, "resyncSeconds": 1},
    }
    operator = f"{live_namespace}-operator"
    cluster_helm("install", live_namespace, str(CHART), values=values)

    def logs() -> str:
        return "\n".join(node.logs(live_namespace).values())

    first = eventually(lambda: holder(kubectl, operator), 90, logs, interval=0.2)
    there = kubectl.inside(watched)
    there.apply(scheduler(f"{app_id}-1", broker))
    eventually(lambda: there.find("deployment", f"{app_id}-1-dispatcher"), 90, logs, interval=0.2)
    there.wait_condition("scheduler", f"{app_id}-1", "TopicsReady", timeout=90)
    events = eventually(lambda: there.list("events"), 60, logs, interval=0.2)
    assert events

    (active,) = [pod for pod in node.pods(live_namespace) if first.startswith(pod.name)]
    kubectl("delete", "pod", active.name, "--force", "--grace-period=0")
    second = eventually(
        lambda: (now := holder(kubectl, operator)) not in ("", first) and now, 90, logs
    )
    assert second != first
    there.apply(scheduler(f"{app_id}-2", broker))
    eventually(lambda: there.find("deployment", f"{app_id}-2-dispatcher"), 90, logs, interval=0.2)
    assert "forbidden" not in logs().lower(), logs()
    cluster_helm("uninstall", live_namespace)
