"""The test node itself: a harness that runs nothing, or not what it was told, proves nothing."""

import json
import sys
import urllib.request
from typing import Any

import pytest
from support.eventually import eventually
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.node import LocalNode
from support.kubernetes.pods import Treatment

# serves what it sees; `/readyz` once it is told to be ready, `/livez` until it is told to be sick
SERVER = """
import http.server, json, os, pathlib, signal, sys
state = pathlib.Path(sys.argv[2]); ready = state / 'ready'; sick = state / 'sick'
sick.unlink(missing_ok=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        good = {'/readyz': ready.exists(), '/livez': not sick.exists()}.get(self.path, True)
        self.send_response(200 if good else 503); self.end_headers()
        files = {sys.argv[1]: pathlib.Path(sys.argv[1]).read_text()}
        self.wfile.write(json.dumps({'env': dict(os.environ), 'files': files}).encode())
    def log_message(self, *_): pass
def end(*_):
    print('ended in good order', flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, end)
print('starting', flush=True)
http.server.HTTPServer((os.environ['ADDRESS'], 8080), Handler).serve_forever()
"""


def deployment(**pod: Any) -> dict[str, Any]:
    labels = {"app": "server"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "server"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def server(**changes: Any) -> dict[str, Any]:
    def secret(key: str) -> dict[str, Any]:
        return {"secretKeyRef": {"name": "credentials", "key": key}}

    def field(path: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": path}}

    return {
        "name": "server",
        "image": "none",
        "command": [sys.executable, "-c", SERVER],
        "args": ["/etc/server/config.yaml", "/state"],
        "env": [
            {"name": "ADDRESS", "valueFrom": field("status.podIP")},
            {"name": "POD", "valueFrom": field("metadata.name")},
            {"name": "PASSWORD", "valueFrom": secret("password")},
            {"name": "GREETING", "value": "$(POD) at /etc/server/config.yaml, not $$(POD)"},
        ],
        "ports": [{"name": "http", "containerPort": 8080}],
        "startupProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1},
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "http"},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/server"},
            {"name": "state", "mountPath": "/state"},
        ],
        **changes,
    }


VOLUMES = [
    {"name": "config", "configMap": {"name": "config"}},
    {"name": "state", "emptyDir": {}},
]
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "config"},
    "data": {"config.yaml": "data: /state/data\nother: /stately\n"},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "credentials"},
    "stringData": {"password": "open sesame"},
}


def ready_replicas(kubectl: Kubectl) -> int:
    return int(kubectl.get("deployment", "server")["status"].get("readyReplicas", 0))


def the_pod(kubectl: Kubectl) -> dict[str, Any]:
    (found,) = kubectl.list("pods")
    return found


def ask(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{address}:8080/", timeout=10) as page:
        return dict(json.loads(page.read()))


def test_a_pod_runs_with_its_variables_volumes_and_probes(
    kubectl: Kubectl, node: LocalNode, live_namespace: str
) -> None:
    kubectl.apply(deployment(containers=[server()], volumes=VOLUMES))
    waiting = eventually(
        lambda: [
            status["state"]["waiting"]
            for pod in kubectl.list("pods")
            for status in pod["status"].get("containerStatuses", [])
            if status["state"].get("waiting", {}).get("message")
        ],
        60,
    )
    assert "not found" in waiting[0]["message"]  # its ConfigMap is not there yet

    kubectl.apply(CONFIG, SECRET)
    (pod,) = node.pods(live_namespace)
    eventually(lambda: the_pod(kubectl)["status"]["containerStatuses"][0]["started"], 60, node.logs)
    seen = ask(pod.address)
    state = next(iter(seen["files"])).replace("/config/server/config.yaml", "/state")
    assert seen["env"]["PASSWORD"] == "open sesame"
    assert seen["env"]["POD"] == pod.name
    assert seen["env"]["GREETING"] == f"{pod.name} at {next(iter(seen['files']))}, not $(POD)"
    assert list(seen["files"].values()) == [f"data: {state}/data\nother: /stately\n"]
    assert ready_replicas(kubectl) == 0

    folder = node.folder / live_namespace / pod.name / "volumes" / "state"
    (folder / "ready").touch()
    eventually(lambda: ready_replicas(kubectl) == 1, 60)

    (folder / "sick").touch()  # liveness: ended, and started again
    eventually(lambda: the_pod(kubectl)["status"]["containerStatuses"][0]["restartCount"] == 1, 60)
    eventually(lambda: ready_replicas(kubectl) == 1, 60)
    assert pod.logs()["server"].count("starting") == 2

    pid = pod.containers[0].pid
    kubectl("scale", "deployment/server", "--replicas=0")
    eventually(lambda: not kubectl.list("pods"), 60)
    assert pid is not None
    assert pod.containers[0].pid is None
    assert pod.logs()["server"].count("ended in good order") == 2


def test_a_command_that_crashes_is_tried_again_and_one_that_ignores_sigterm_is_killed(
    kubectl: Kubectl, node: LocalNode, live_namespace: str
) -> None:
    crashing = {"name": "crashing", "image": "none", "command": ["sh", "-c", "exit 7"]}
    stubborn = {
        "name": "stubborn",
        "image": "none",
        "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
    }
    kubectl.apply(deployment(containers=[crashing, stubborn], terminationGracePeriodSeconds=1))

    def crashed() -> dict[str, Any] | None:
        for pod in kubectl.list("pods"):
            for status in pod["status"].get("containerStatuses", []):
                if status["name"] == "crashing" and status["restartCount"] >= 2:
                    return dict(status["lastState"]["terminated"])
        return None

    assert eventually(crashed, 60)["exitCode"] == 7
    assert ready_replicas(kubectl) == 0
    (pod,) = node.pods(live_namespace)
    assert pod.containers[1].pid is not None
    kubectl("delete", "deployment/server", "--wait=false")
    eventually(lambda: not kubectl.list("pods"), 60)
    assert pod.join(0)
    assert pod.containers[1].pid is None


def test_a_pod_that_is_done_stays_to_be_read(kubectl: Kubectl, live_namespace: str) -> None:
    for name, code, phase in (("good", 0, "Succeeded"), ("bad", 3, "Failed")):
        container = {"name": "job", "image": "none", "command": ["sh", "-c", f"exit {code}"]}
        kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
        )
        eventually(lambda n=name, p=phase: kubectl.get("pod", n)["status"]["phase"] == p, 60)


def test_elsewhere_pods_are_only_said_to_be_ready(
    kubectl: Kubectl, node: LocalNode, namespace: str
) -> None:
    container = {"name": "nothing", "image": "none", "command": ["/no/such/program"]}
    kubectl.apply(deployment(containers=[container]))
    eventually(lambda: ready_replicas(kubectl) == 1, 60)
    node.treat(namespace, Treatment.LEAVE_PENDING)
    kubectl("scale", "deployment/server", "--replicas=2")
    eventually(lambda: len(node.pods(namespace)) == 2, 60)
    eventually(
        lambda: kubectl.get("deployment", "server")["status"].get("unavailableReplicas") == 1, 60
    )
    kubectl("delete", "deployment/server", "--wait=false")
    eventually(lambda: not kubectl.list("pods"), 60)


def test_a_pod_acts_with_the_rights_of_its_service_account(
    kubectl: Kubectl, node: LocalNode, live_namespace: str
) -> None:
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "reader", "--verb=get", "--resource=configmaps")
    account = f"{live_namespace}:reader"
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={account}")
    kubectl.apply(CONFIG)
    program = " ".join(str(word) for word in kubectl.program)
    command = f"{program} get configmap config && {program} get secret credentials"
    container = {"name": "asks", "image": "none", "command": ["sh", "-c", command]}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "asks"},
            "spec": {
                "serviceAccountName": "reader",
                "restartPolicy": "Never",
                "containers": [container],
            },
        }
    )
    eventually(lambda: kubectl.get("pod", "asks")["status"]["phase"] == "Failed", 60)
    told = node.logs(live_namespace)["asks/asks"]
    assert "config " in told
    assert f'User "system:serviceaccount:{account}" cannot get resource "secrets"' in told


@pytest.mark.parametrize("question", [("get", "pods", True), ("get", "secrets", False)])
def test_rights_are_asked_for_both_ways(
    kubectl: Kubectl, namespace: str, question: tuple[str, str, bool]
) -> None:
    verb, resource, expected = question
    kubectl("create", "role", "some", "--verb=get", "--resource=pods")
    kubectl("create", "rolebinding", "some", "--role=some", "--user=somebody")
    assert kubectl.can(verb, resource, user="somebody") is expected
