"""Intake whose requests are judged in Spark executor pods, from the example that we ship."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.conftest import NAMESPACE, Cluster
from e2e.users import Users, assert_exactly_these, restarts
from punctual_worker.local.broker import EmbeddedBroker
from support.eventually import eventually
from support.kafka import create_topic
from support.kubernetes.schedulers import KIND, merged

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark-executors.yaml"
NAME = "wide"
EXECUTORS = "app.kubernetes.io/component=executor"


def _objects(cluster: Cluster, servers: str, name: str = NAME) -> list[dict[str, Any]]:
    """The example, made small enough for this machine."""
    objects = [each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each]
    for each in objects:
        if each["kind"] == "RoleBinding":
            each["subjects"][0]["namespace"] = NAMESPACE
        if each["kind"] == "Scheduler":
            each["metadata"]["name"] = name
            small = {
                "kafka": {"bootstrapServers": [servers]},
                "topics": {"requests": {"partitions": 2}, "actions": {"partitions": 1}},
                "intake": {
                    "executors": {"instances": 1, "cores": 2, "memoryMebibytes": 512},
                    "sparkProperties": {"spark.kubernetes.executor.request.cores": "100m"},
                },
                "dispatchers": {"replicas": 1},
                "console": {"state": "Disabled"},
                "podTemplate": {"extraEnv": cluster.api_variables},
            }
            each["spec"] = merged(each["spec"], small)
    return objects


@pytest.fixture(scope="module")
def users(cluster: Cluster, operator: str, broker: EmbeddedBroker) -> Users:
    begun = time.monotonic()
    cluster.kubectl.apply(*_objects(cluster, broker.bootstrap_servers))
    cluster.kubectl.wait_condition(KIND, NAME, "Ready", timeout=240)
    print(f"\nwith an executor, from kubectl apply to Ready: {time.monotonic() - begun:.1f} s")
    return Users(cluster.kubectl, broker.bootstrap_servers, NAME)


def executor_pods(cluster: Cluster) -> list[dict[str, Any]]:
    return cluster.kubectl.list("pods", selector=EXECUTORS)


def test_a_request_goes_through_an_executor_to_a_delivered_message(
    cluster: Cluster, users: Users
) -> None:
    (pod,) = executor_pods(cluster)
    assert pod["status"]["phase"] == "Running"
    destination = create_topic(users.servers, "wide-first", 2)
    due = users.schedule(destination, {f"wide {n}": 3 + n / 10 for n in range(20)})
    assert_exactly_these(users, destination, due)


def test_an_executor_has_no_rights_and_is_confined(cluster: Cluster, users: Users) -> None:
    (pod,) = executor_pods(cluster)
    (intake,) = cluster.kubectl.list("pods", selector="app.kubernetes.io/component=intake")
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", intake["metadata"]["uid"])
    assert not [each for each in pod["spec"]["volumes"] if "projected" in each]
    task = cluster.node.task(pod["metadata"]["uid"], "executor")
    facts = task.facts()
    assert facts["Uid"].split() == facts["Gid"].split() == ["65532"] * 4
    assert {int(facts[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Bnd")} == {0}
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    given = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
    own = {place for place in task.writable_mounts() - given if "spark" not in place}
    assert own == {"/tmp"}


def test_a_killed_executor_is_replaced_and_every_message_comes_once(
    cluster: Cluster, users: Users
) -> None:
    destination = create_topic(users.servers, "wide-killed", 2)
    due = users.schedule(destination, {f"before {n}": 20 + n / 10 for n in range(20)})
    (pod,) = executor_pods(cluster)
    os.kill(cluster.node.task(pod["metadata"]["uid"], "executor").pid, signal.SIGKILL)
    killed = time.monotonic()
    due |= users.schedule(destination, {f"after {n}": 20 + n / 10 for n in range(20)})

    def others() -> list[str]:
        return [
            each["metadata"]["name"]
            for each in executor_pods(cluster)
            if each["metadata"]["uid"] != pod["metadata"]["uid"]
            and each["status"]["phase"] == "Running"
        ]

    eventually(others, 120, interval=0.2)
    print(f"\na killed executor was replaced after {time.monotonic() - killed:.1f} s")
    assert_exactly_these(users, destination, due)


@pytest.mark.parametrize(
    ("verbs", "told"),
    [
        ([], "forbidden"),
        (["get", "list", "watch", "patch", "delete", "deletecollection"], "executors"),
    ],
    ids=["none", "all-but-create"],
)
def test_a_right_that_the_account_lacks_is_told(
    cluster: Cluster, operator: str, broker: EmbeddedBroker, verbs: list[str], told: str
) -> None:
    kubectl, name = cluster.kubectl, "rightless"
    objects = _objects(cluster, broker.bootstrap_servers, name)
    for each in objects:
        if each["kind"] == "Role":
            each["rules"] = [rule | {"verbs": verbs} for rule in each["rules"] if verbs]
        for place in (each["metadata"], each.get("roleRef", {}), *each.get("subjects", ())):
            place["name"] = place.get("name", "").replace("reminders", name) or name
        if each["kind"] == "Scheduler":
            each["spec"]["podTemplate"]["serviceAccountName"] = name
    kubectl.apply(*objects)

    def message() -> str:
        return str(kubectl.condition(KIND, name, "IntakeReady").get("message"))

    eventually(lambda: told in message().lower(), 180, message, interval=0.2)
    print(f"\n{message()}")
    kubectl.delete(KIND, name, wait=True)
    own = f"app.kubernetes.io/instance={name}"
    eventually(lambda: not kubectl.list("pods", selector=own), 60, interval=0.2)


def test_nothing_of_it_stays(cluster: Cluster, users: Users) -> None:
    (intake,) = cluster.kubectl.list("pods", selector="app.kubernetes.io/component=intake")
    assert restarts(intake) == 0
    cluster.kubectl.delete(KIND, NAME, wait=True)
    eventually(lambda: not cluster.kubectl.list("pods"), 120, interval=0.2)
