"""A real control plane and a test node, once for the whole run; a namespace for every test.

These tests come last, because their programs are built in the background while the others run.
"""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from punctual_worker.local import tether
from support.kubernetes import binaries
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.helm import Helm, find_helm
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.node import LocalNode
from support.kubernetes.operator_process import OperatorProcess
from support.kubernetes.pods import Treatment
from support.scram_broker import ScramBroker

HERE = Path(__file__).parent
CRDS = sorted((HERE.parents[1] / "crds").glob("*.yaml"))
_SHOWN_CHARACTERS = 6000
_build: list[subprocess.Popen[bytes]] = []
_logs = pytest.StashKey[list[Callable[[], dict[str, str]]]]()


def _needs_control_plane(item: pytest.Item) -> bool:
    return "control_plane" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that need the control plane come last."""
    items.sort(key=_needs_control_plane)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build ahead if a test that was picked needs it."""
    wanted = any(_needs_control_plane(item) for item in session.items)
    if wanted and not session.config.option.collectonly and not binaries.is_at_hand():
        builder = [sys.executable, str(binaries.__file__)]
        _build.append(tether.spawn(builder, output=subprocess.DEVNULL))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[bool | None]:
    """Wait for the build here, where a test's time limit does not count yet."""
    if _needs_control_plane(item):
        while _build:
            _build.pop().wait()
    return (yield)


def pytest_sessionfinish() -> None:
    """A build that nobody waited for ends with the run; the next one goes on from there."""
    while _build:
        tether.stop(_build.pop(), timeout=30)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, API server and controllers, with our custom resource definitions."""
    try:
        programs = binaries.find_binaries()
    except binaries.MissingBinariesError as error:
        pytest.skip(str(error))
    with ControlPlane(programs, tmp_path_factory.mktemp("kubernetes"), crds=CRDS) as running:
        yield running


@pytest.fixture(scope="session")
def node(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalNode]:
    """Where pods run, or are said to run."""
    with LocalNode(control_plane, tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def namespace(
    control_plane: ControlPlane, node: LocalNode, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A fresh namespace. Its pods are only said to be ready; `node.treat` changes that."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    control_plane.kubectl("create", "namespace", name)
    _show_on_failure(request, lambda: node.logs(name))
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")
    node.clear(name)


@pytest.fixture
def live_namespace(namespace: str, node: LocalNode) -> str:
    """A fresh namespace whose pods really run."""
    node.treat(namespace, Treatment.RUN)
    return namespace


@pytest.fixture
def kubectl(control_plane: ControlPlane, namespace: str) -> Kubectl:
    """kubectl as administrator, in the test's namespace."""
    return control_plane.kubectl.inside(namespace)


@pytest.fixture
def start_operator(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., OperatorProcess]]:
    """Starts operators; without other settings they watch the test's namespace alone."""
    with ExitStack() as stack:

        def start(*, wait: bool = True, **settings: object) -> OperatorProcess:
            kubeconfig = settings.pop("kubeconfig", control_plane.kubeconfig)
            log_file = tmp_path / f"operator-{uuid.uuid4().hex[:6]}.log"
            own = {"watch_namespaces": namespace, "lease_namespace": namespace, **settings}
            operator = OperatorProcess(kubeconfig=kubeconfig, log_file=log_file, **own)
            _show_on_failure(request, lambda: {log_file.name: operator.log()})
            stack.callback(operator.stop)
            return operator.start(wait=wait)

        yield start


@pytest.fixture
def operator(start_operator: Callable[..., OperatorProcess]) -> OperatorProcess:
    """One operator that watches the test's namespace, ready."""
    return start_operator()


@pytest.fixture(scope="session")
def scram_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScramBroker]:
    """A broker that wants TLS and SCRAM, with the user of the example."""
    folder = tmp_path_factory.mktemp("scram")
    with ScramBroker(folder, user="punctual", password="change-me") as running:
        yield running


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """helm without a cluster, for rendering."""
    program = find_helm()
    if program is None:
        pytest.skip("helm was not found: install it, the chart's tests need it")
    return Helm(program, tmp_path_factory.mktemp("helm"))


@pytest.fixture
def cluster_helm(helm: Helm, control_plane: ControlPlane, namespace: str) -> Helm:
    """helm as administrator, in the test's namespace."""
    return Helm(helm.program, helm.folder, control_plane.kubeconfig, namespace)


def _show_on_failure(request: pytest.FixtureRequest, logs: Callable[[], dict[str, str]]) -> None:
    request.node.stash.setdefault(_logs, []).append(logs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """A failed test shows what its pods and operators wrote, before all of it is cleared away."""
    report = yield
    if report.failed:
        for logs in item.stash.get(_logs, []):
            for name, text in logs().items():
                report.sections.append((f"log of {name}", text[-_SHOWN_CHARACTERS:]))
    return report
