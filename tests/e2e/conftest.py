"""A real node with real containers of our own images, once for the whole run. Needs root."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from punctual_worker.local.broker import EmbeddedBroker
from support.kubernetes.binaries import find_binaries, find_node_program
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.helm import CHART, Helm, find_helm
from support.kubernetes.host import ADDRESS, left_behind
from support.kubernetes.images import Images, find_images
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.real_node import RealNode

OPERATOR_NAMESPACE = "punctual-system"
NAMESPACE = "demo"
_SHOWN_CHARACTERS = 6000


@dataclass(frozen=True)
class Cluster:
    """What a test needs to reach everything."""

    control_plane: ControlPlane
    node: RealNode
    images: Images

    @property
    def kubectl(self) -> Kubectl:
        return self.control_plane.kubectl.inside(NAMESPACE)

    @property
    def api_variables(self) -> list[dict[str, str]]:
        """For a pod: nobody translates the address of the Service in front of the API server."""
        host, _, port = self.control_plane.url.removeprefix("https://").rpartition(":")
        return [
            {"name": "KUBERNETES_SERVICE_HOST", "value": host},
            {"name": "KUBERNETES_SERVICE_PORT", "value": port},
        ]

    def logs(self) -> dict[str, str]:
        found = {name: self.node.log(name) for name in ("kubelet", "containerd")}
        for namespace in (OPERATOR_NAMESPACE, NAMESPACE):
            found |= self.node.pod_logs(namespace)
        return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Never by accident: whoever leaves out the marker would not want their machine changed."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Control plane and node. When they are gone, nothing of them is left on this machine."""
    if os.geteuid() != 0:
        pytest.skip("a real node needs root: sudo make e2e")
    program, images = find_node_program(), find_images()
    folder = tmp_path_factory.mktemp("node")
    begun = time.monotonic()
    with (
        RealNode(program, folder, [images.operator, images.worker], pause=images.pause) as node,
        # pods reach this machine under this address alone
        ControlPlane(
            find_binaries(), tmp_path_factory.mktemp("kubernetes"), host=ADDRESS
        ) as control_plane,
    ):
        node.join(control_plane)
        print(f"\ncontrol plane and node ready after {time.monotonic() - begun:.1f} s")
        for namespace in (OPERATOR_NAMESPACE, NAMESPACE):
            _make_restricted_namespace(control_plane.kubectl, namespace)
        yield Cluster(control_plane, node, images)
        # before the control plane goes: the kubelet would ask it for ever
        node.stop()
    assert left_behind(folder) == {}


@pytest.fixture(scope="session")
def broker(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Where pods and tests both reach it."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), host=ADDRESS) as running:
        yield running


@pytest.fixture(scope="session")
def helm(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    program = find_helm()
    if program is None:
        pytest.skip("helm was not found: install it, the chart's tests need it")
    kubeconfig = cluster.control_plane.kubeconfig
    return Helm(program, tmp_path_factory.mktemp("helm"), kubeconfig, OPERATOR_NAMESPACE)


@pytest.fixture(scope="session")
def operator(cluster: Cluster, helm: Helm) -> Iterator[str]:
    """The chart, as a user installs it; the name of its Deployment."""
    begun = time.monotonic()
    values = _values(cluster)
    helm("install", "punctual", str(CHART), "--wait", "--timeout", "150s", values=values)
    print(f"\nhelm install took {time.monotonic() - begun:.1f} s")
    yield "punctual-operator"
    helm("uninstall", "punctual", "--wait")


def _values(cluster: Cluster) -> dict[str, object]:
    images = cluster.images

    def local(name: str) -> dict[str, str]:
        repository, _, tag = name.rpartition(":")
        return {"repository": repository, "tag": tag, "pullPolicy": "Never"}

    return {
        "image": local(images.operator.name),
        "worker": {"image": local(images.worker.name)},
        "operator": {"resyncSeconds": 2},
        "extraEnv": cluster.api_variables,
        # nobody translates the name of a Service: `helm test` goes without
        "metrics": {"service": {"enabled": False}},
    }


def _make_restricted_namespace(kubectl: Kubectl, name: str) -> None:
    """The API server refuses pods that do not fit the strictest Pod Security Standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": name, "labels": labels}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """A failed test shows what pods, kubelet and containerd wrote, before all of it is cleared."""
    report = yield
    running = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(running, Cluster):
        for name, text in running.logs().items():
            report.sections.append((f"log of {name}", text[-_SHOWN_CHARACTERS:]))
    return report


@pytest.fixture(scope="session")
def pods_of(cluster: Cluster) -> Callable[[str], list[dict[str, object]]]:
    """The live pods of one part of the Scheduler."""

    def find(part: str) -> list[dict[str, object]]:
        found = cluster.kubectl.list("pods", selector=f"app.kubernetes.io/component={part}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    return find
