"""The chart against the real API server: installed, upgraded, uninstalled."""

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from support.eventually import eventually
from support.kubernetes import binaries
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.helm import CHART, Helm, HelmError
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.manifests import container_of, variables_of

WITHOUT_CRDS = {"crds": {"enabled": False}}
CRD = "schedulers.punctual.dev"


def example_in(notes: str) -> str:
    """The Scheduler that the chart's notes propose, as somebody would copy it."""
    between = re.search(r"<<EOF\n(.*?)\n +EOF", notes, re.DOTALL)
    assert between, notes
    return textwrap.dedent(between[1])


@pytest.fixture(scope="module")
def bare_cluster(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A second control plane, because on the shared one other tests need the definition."""
    folder = tmp_path_factory.mktemp("bare-kubernetes")
    with ControlPlane(binaries.find_binaries(), folder) as running:
        yield running


def until_ready(kubectl: Kubectl, name: str, replicas: int) -> dict[str, Any]:
    """The Deployment with so many replicas ready: `helm --wait` leaves out those that may be
    unavailable, which with one replica is all of them."""

    def ready() -> dict[str, Any] | None:
        found = kubectl.get("deployment", name)
        return found if found["status"].get("readyReplicas") == replicas else None

    return eventually(ready, 60)


def test_installed_upgraded_and_uninstalled_where_only_restricted_pods_may_run(
    cluster_helm: Helm, kubectl: Kubectl, namespace: str
) -> None:
    standard = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", namespace, standard)
    release, operator = namespace, f"{namespace}-punctual-operator"
    told = cluster_helm("install", release, str(CHART), "--wait", values=WITHOUT_CRDS)
    assert f"rollout status deployment/{operator}" in told
    deployment = until_ready(kubectl, operator, 1)
    assert kubectl.list("services")[0]["spec"]["ports"][0]["port"] == 8080

    more = {
        **WITHOUT_CRDS,
        "replicaCount": 2,
        "operator": {"logLevel": "debug"},
        "podDisruptionBudget": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "metrics": {"grafanaDashboard": {"enabled": True}},
    }
    cluster_helm("upgrade", release, str(CHART), "--wait", values=more)
    upgraded = until_ready(kubectl, operator, 2)
    assert variables_of(upgraded)["PUNCTUAL_OPERATOR_LOG_LEVEL"] == "debug"
    assert container_of(upgraded)["image"] == container_of(deployment)["image"]
    assert kubectl.get("networkpolicy", operator)
    assert kubectl.get("configmap", f"{release}-punctual-dashboard")
    budget = eventually(
        lambda: kubectl.get("poddisruptionbudget", operator)["status"].get("currentHealthy") == 2,
        60,
    )
    assert budget

    cluster_helm("uninstall", release, "--wait")
    for kind in ("deployments", "services", "roles", "rolebindings", "networkpolicies"):
        assert kubectl.list(kind) == [], kind
    assert kubectl.find("clusterrole", operator) is None
    assert kubectl.find("clusterrolebinding", operator) is None


def test_a_pod_that_is_not_restricted_is_refused_there(kubectl: Kubectl, namespace: str) -> None:
    """The test above would pass as well if nobody looked at the standard."""
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    container = {"name": "any", "image": "any"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "any"},
        "spec": {"containers": [container]},
    }
    with pytest.raises(Exception, match="violates PodSecurity"):
        kubectl.apply(pod)


def test_namespaces_that_are_not_there_are_told_and_nothing_is_left(
    cluster_helm: Helm, kubectl: Kubectl, namespace: str
) -> None:
    values = {**WITHOUT_CRDS, "watchNamespaces": ["not-there"]}
    with pytest.raises(HelmError, match='namespaces "not-there" not found'):
        cluster_helm("install", namespace, str(CHART), "--atomic", values=values)
    assert kubectl.list("deployments") == []


def test_the_definition_and_all_schedulers_survive_an_uninstall(
    bare_cluster: ControlPlane, helm: Helm
) -> None:
    kubectl = bare_cluster.kubectl
    cluster = Helm(helm.program, helm.folder, bare_cluster.kubeconfig)
    told = cluster("install", "punctual", str(CHART), values={"replicaCount": 0})
    kubectl("wait", "crd", CRD, "--for=condition=Established", "--timeout=60s")
    kubectl.apply(example_in(told))
    assert "kept due to the resource policy" in cluster("uninstall", "punctual")
    assert kubectl.get("scheduler", "reminders")

    # installed again it is taken over, and upgraded like everything else
    cluster("install", "punctual", str(CHART), values={"replicaCount": 0})
    kubectl("label", "crd", CRD, "helm.sh/chart=older", "--overwrite")
    going = {"replicaCount": 0, "crds": {"keep": False}}
    cluster("upgrade", "punctual", str(CHART), values=going)
    definition = kubectl.get("crd", CRD)
    assert "helm.sh/resource-policy" not in definition["metadata"]["annotations"]
    cluster("uninstall", "punctual")
    eventually(lambda: kubectl.find("crd", CRD) is None, 60)
