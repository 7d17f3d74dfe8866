"""From `helm install` to a delivered message in real containers of the images that we ship.

The tests share one Scheduler, because each further one costs the start of a Spark; they run in
this order, and the last one deletes it.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2e.conftest import OPERATOR_NAMESPACE, Cluster
from e2e.timeline import Timeline, watched
from e2e.users import Users, assert_exactly_these, restarts
from punctual_worker.contract.topics import TopicNames
from punctual_worker.local.broker import EmbeddedBroker
from support.eventually import eventually
from support.kafka import consume_committed, create_topic
from support.kubernetes.helm import Helm
from support.kubernetes.schedulers import KIND, scheduler

Pods = Callable[[str], list[dict[str, Any]]]
NAME = "reminders"
PARTS = ("intake", "dispatcher", "console")
SERVES = {
    "intake": "taking requests in",
    "dispatcher": "serving partition",
    "console": "the view is complete",
}
"""What each part writes when it does."""
USER = 65532


@pytest.fixture(scope="module")
def timeline(
    cluster: Cluster, operator: str, broker: EmbeddedBroker, pods_of: Pods
) -> Iterator[Timeline]:
    """The Scheduler is applied, and followed until it is ready."""
    kubectl, servers = cluster.kubectl, broker.bootstrap_servers
    with watched(kubectl) as timeline:
        kubectl.apply(scheduler(NAME, servers, console={"state": "Enabled"}))
        timeline.note("Scheduler: applied", time.time())
        kubectl.wait_condition(KIND, NAME, "ConsoleReady", timeout=240)
        kubectl.wait_condition(KIND, NAME, "Ready", timeout=240)
        eventually(lambda: "Scheduler: Ready" in timeline.first, 10)
    for part, words in SERVES.items():
        (pod,) = pods_of(part)
        task = cluster.node.task(pod["metadata"]["uid"], part)
        timeline.note(f"{part}: process started", task.started())
        (log,) = (
            text
            for name, text in cluster.node.pod_logs(cluster.kubectl.namespace).items()
            if name.startswith(f"{pod['metadata']['name']}/{part}/")
        )
        timeline.read_log(part, log, ready=words)
    print(f"\n{timeline.text()}")
    yield timeline
    kubectl.delete(KIND, NAME, wait=True)


@pytest.fixture(scope="module")
def reminders(cluster: Cluster, timeline: Timeline, broker: EmbeddedBroker) -> Users:
    return Users(cluster.kubectl, broker.bootstrap_servers, NAME)


def test_what_is_not_the_workers_own_start_takes_no_longer_than_ten_seconds(
    timeline: Timeline,
) -> None:
    total = timeline.first["Scheduler: Ready"] - timeline.begun
    assert total - timeline.own_start <= 10


def test_a_message_is_delivered(reminders: Users) -> None:
    destination = create_topic(reminders.servers, "first", 2)
    due = reminders.schedule(destination, {"hello": 3})
    (found,) = consume_committed(reminders.servers, destination, 1, timeout=60, settle=1)
    assert found.value == b"hello"
    late = found.timestamp_ms / 1000 - due["hello"]
    print(f"\nthe first message was {late * 1000:.0f} ms late")
    assert late >= -0.001


def test_pods_are_confined_and_did_not_restart(
    cluster: Cluster, reminders: Users, operator: str, pods_of: Pods
) -> None:
    there = cluster.kubectl.inside(OPERATOR_NAMESPACE)
    pods = {part: pods_of(part) for part in PARTS} | {"operator": there.list("pods")}
    for name, found in pods.items():
        (pod,) = found
        assert restarts(pod) == 0, name
        task = cluster.node.task(pod["metadata"]["uid"], name)
        facts = task.facts()
        assert facts["Uid"].split() == [str(USER)] * 4, name
        assert facts["Gid"].split() == [str(USER)] * 4, name
        assert {int(facts[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Bnd")} == {0}, name
        assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2"), name
        own = {"/tmp"} if name == "operator" else {"/tmp", "/var/lib/punctual"}
        # what a kubelet gives to every container, and nobody but root can write to
        given = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
        assert task.writable_mounts() - given == own, name


def test_dispatchers_are_scaled(reminders: Users, pods_of: Pods) -> None:
    begun = time.monotonic()
    reminders.kubectl("scale", f"psched/{NAME}", "--replicas=2")
    eventually(lambda: reminders.status["readyReplicas"] == 2, 120, interval=0.2)
    print(f"\nfrom kubectl scale to a second ready dispatcher: {time.monotonic() - begun:.1f} s")
    assert len(pods_of("dispatcher")) == 2
    destination = create_topic(reminders.servers, "scaled", 2)
    due = reminders.schedule(destination, {f"scaled {n}": 1 + n / 10 for n in range(20)})
    assert_exactly_these(reminders, destination, due)


def test_a_killed_dispatcher_is_restarted_and_every_message_comes_once(
    cluster: Cluster, reminders: Users, pods_of: Pods
) -> None:
    destination = create_topic(reminders.servers, "killed", 2)
    due = reminders.schedule(destination, {f"message {n}": 6 + n / 10 for n in range(200)})
    victim, *_ = pods_of("dispatcher")
    uid = victim["metadata"]["uid"]
    time.sleep(max(0.0, min(due.values()) + 3 - time.time()))  # in the middle of them
    os.kill(cluster.node.task(uid, "dispatcher").pid, signal.SIGKILL)
    killed = time.monotonic()

    def is_back() -> bool:
        (pod,) = [pod for pod in pods_of("dispatcher") if pod["metadata"]["uid"] == uid]
        return restarts(pod) == 1 and bool(pod["status"]["containerStatuses"][0]["ready"])

    eventually(is_back, 120, interval=0.2)
    print(f"\na killed dispatcher was ready again after {time.monotonic() - killed:.1f} s")
    assert_exactly_these(reminders, destination, due)
    for part in ("intake", "console"):
        assert [restarts(pod) for pod in pods_of(part)] == [0]


def test_helm_test_finds_the_operator_at_work(helm: Helm, operator: str) -> None:
    assert "Phase:          Succeeded" in helm("test", "punctual", "--timeout", "90s")


def test_a_deleted_scheduler_takes_its_pods_along_and_keeps_its_topics(
    cluster: Cluster, reminders: Users
) -> None:
    begun = time.monotonic()
    reminders.kubectl.delete(KIND, NAME, wait=True)
    eventually(lambda: not reminders.kubectl.list("pods"), 120, interval=0.2)
    print(f"\nfrom kubectl delete to no pods: {time.monotonic() - begun:.1f} s")
    assert reminders.kubectl.list("deployments") == []
    assert len(consume_committed(reminders.servers, TopicNames(NAME).requests)) == 221
    (pod,) = cluster.kubectl.inside(OPERATOR_NAMESPACE).list("pods")
    assert restarts(pod) == 0
