"""What the chart's accounts may do, and what they must not: the real API server decides."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.eventually import eventually
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.helm import CHART, Helm
from support.kubernetes.kubectl import Kubectl, KubectlError
from support.kubernetes.rights import Rights, reviewing

CHILDREN = (
    "deployments.apps",
    "services",
    "configmaps",
    "serviceaccounts",
    "poddisruptionbudgets.policy",
    "networkpolicies.networking.k8s.io",
)
MAY = [
    *(f"{verb} schedulers.punctual.dev" for verb in ("get", "list", "watch", "patch")),
    *(f"{verb} schedulers.punctual.dev/status" for verb in ("get", "patch")),
    "update schedulers.punctual.dev/finalizers",
    *(
        f"{verb} {kind}"
        for kind in CHILDREN
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    "get secrets",
    *("get pods", "list pods"),
    *("create events", "patch events"),
]
MUST_NOT = [
    # read or change credentials at large
    *(f"{verb} secrets" for verb in ("list", "watch", "create", "update", "patch", "delete")),
    "create serviceaccounts/token",
    # run or enter anything other than by its own Deployments
    *(f"{verb} pods" for verb in ("create", "update", "patch", "delete")),
    *("create pods/exec", "create pods/attach", "create pods/portforward", "get pods/log"),
    *("create pods/eviction", "create jobs.batch", "create daemonsets.apps"),
    "create statefulsets.apps",
    # make or end what is the users' own
    *(f"{verb} schedulers.punctual.dev" for verb in ("create", "delete", "deletecollection")),
    "deletecollection deployments.apps",
    # give itself more rights
    *(f"{verb} roles.rbac.authorization.k8s.io" for verb in ("create", "patch", "escalate")),
    *(f"{verb} rolebindings.rbac.authorization.k8s.io" for verb in ("create", "patch")),
    "bind clusterroles.rbac.authorization.k8s.io",
    "impersonate users",
    "impersonate serviceaccounts",
]
MUST_NOT_ANYWHERE = [
    *(f"{verb} nodes" for verb in ("get", "list", "patch")),
    *(f"{verb} namespaces" for verb in ("create", "patch", "delete")),
    *(f"{verb} persistentvolumes" for verb in ("get", "delete")),
    "create clusterroles.rbac.authorization.k8s.io",
    "create clusterrolebindings.rbac.authorization.k8s.io",
    "patch customresourcedefinitions.apiextensions.k8s.io",
    "delete customresourcedefinitions.apiextensions.k8s.io",
    "create validatingwebhookconfigurations.admissionregistration.k8s.io",
]


@dataclass(frozen=True)
class Installed:
    """The chart on the API server, without pods: only its rights matter here."""

    namespace: str
    watched: str
    rights: Rights
    kubeconfig: Path


@pytest.fixture(scope="module", params=["cluster-wide", "one namespace"])
def installed(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    helm: Helm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installed]:
    namespace, watched = (f"{word}-{uuid.uuid4().hex[:6]}" for word in ("home", "watched"))
    for name in (namespace, watched):
        control_plane.kubectl("create", "namespace", name)
    cluster = Helm(helm.program, helm.folder, control_plane.kubeconfig, namespace)
    values = {
        "crds": {"enabled": False},
        "replicaCount": 0,
        "fullnameOverride": namespace,
        "watchNamespaces": [] if request.param == "cluster-wide" else [watched],
    }
    cluster("install", namespace, str(CHART), values=values)
    account = f"{namespace}-operator"
    with reviewing(control_plane.kubeconfig) as api:
        yield Installed(
            namespace,
            watched,
            Rights(api, f"system:serviceaccount:{namespace}:{account}"),
            control_plane.service_account_kubeconfig(
                tmp_path_factory.mktemp("account") / "kubeconfig",
                namespace=namespace,
                name=account,
            ),
        )
    cluster("uninstall", namespace)
    for name in (namespace, watched):
        control_plane.kubectl("delete", "namespace", name, "--wait=false")


def test_the_operator_may_do_its_work_and_nothing_else_where_it_watches(
    installed: Installed,
) -> None:
    refused = [each for each in MAY if not installed.rights.may(each, installed.watched)]
    allowed = [each for each in MUST_NOT if installed.rights.may(each, installed.watched)]
    everywhere = [each for each in MUST_NOT_ANYWHERE if installed.rights.may(each)]
    assert (refused, allowed, everywhere) == ([], [], [])


def test_the_operator_keeps_one_lease_and_no_other(installed: Installed) -> None:
    may, home = installed.rights.may, installed.namespace
    own = f"leases.coordination.k8s.io={home}-operator"
    assert may("create leases.coordination.k8s.io", home)
    assert may(f"get {own}", home)
    assert may(f"update {own}", home)
    assert not may(f"delete {own}", home)
    assert not may("update leases.coordination.k8s.io=kube-scheduler", home)
    assert not may("list leases.coordination.k8s.io", home)
    assert not may(f"get {own}", "kube-system")
    assert not may("create leases.coordination.k8s.io", installed.watched)


def test_with_a_list_of_namespaces_the_others_are_out_of_reach(
    installed: Installed, request: pytest.FixtureRequest
) -> None:
    cluster_wide = "cluster-wide" in request.node.name
    elsewhere = [each for each in MAY if installed.rights.may(each, "default")]
    assert elsewhere == (MAY if cluster_wide else [])


def test_the_accounts_own_token_is_refused_what_it_must_not_do(
    control_plane: ControlPlane, installed: Installed
) -> None:
    own = Kubectl(control_plane.kubectl.program, installed.kubeconfig, installed.watched)
    assert own.list("deployments") == []
    with pytest.raises(KubectlError, match='cannot list resource "secrets"'):
        own.list("secrets")
    with pytest.raises(KubectlError, match=r"(?i)forbidden"):
        own("create", "rolebinding", "more", "--clusterrole=admin", "--user=me")
    with pytest.raises(KubectlError, match=r"(?i)forbidden"):
        own("auth", "can-i", "get", "secrets", "--as=admin")


@pytest.mark.parametrize(
    ("role", "may", "must_not"),
    [
        (
            "view",
            ["get schedulers.punctual.dev", "get schedulers.punctual.dev/status"],
            ["create schedulers.punctual.dev", "patch schedulers.punctual.dev/scale"],
        ),
        (
            "edit",
            [
                *(f"{verb} schedulers.punctual.dev" for verb in ("get", "create", "delete")),
                "patch schedulers.punctual.dev/scale",
            ],
            ["patch schedulers.punctual.dev/status", "update schedulers.punctual.dev/finalizers"],
        ),
        ("admin", ["create schedulers.punctual.dev"], ["patch schedulers.punctual.dev/status"]),
    ],
)
def test_who_may_view_or_edit_a_namespace_may_do_so_with_its_schedulers(
    control_plane: ControlPlane,
    installed: Installed,
    role: str,
    may: list[str],
    must_not: list[str],
) -> None:
    user, watched = f"{role}-{installed.namespace}", installed.watched
    inside = control_plane.kubectl.inside(watched)
    inside("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")
    with reviewing(control_plane.kubeconfig) as api:
        rights = Rights(api, user)
        eventually(lambda: rights.may(may[0], watched), 60, "the roles are aggregated")
        assert [each for each in may if not rights.may(each, watched)] == []
        assert [each for each in must_not if rights.may(each, watched)] == []
        assert not rights.may(may[0], "default")
