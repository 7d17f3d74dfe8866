"""The ends of things: of Schedulers, of operators, and of operators in the middle of their work."""

from collections.abc import Callable

from punctual_worker.contract.topics import TopicNames
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.topics.admin import TopicAdmin
from support.eventually import eventually
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.operator_process import OperatorProcess
from support.kubernetes.schedulers import KIND, scheduler


def topics_of(broker: EmbeddedBroker, app_id: str) -> set[str]:
    admin = TopicAdmin({"bootstrap.servers": broker.bootstrap_servers})
    return set(admin.describe(TopicNames(app_id).all))


def test_a_deleted_scheduler_leaves_its_topics_unless_told_otherwise(
    operator: OperatorProcess, kubectl: Kubectl, broker: EmbeddedBroker, app_id: str
) -> None:
    kept, gone = f"{app_id}-kept", f"{app_id}-gone"
    servers = broker.bootstrap_servers
    kubectl.apply(
        scheduler("kept", servers, appId=kept),
        scheduler("gone", servers, appId=gone, topics={"deletionPolicy": "Delete"}),
    )
    for name in ("kept", "gone"):
        kubectl.wait_condition(KIND, name, "Ready")
    # what keeps its topics needs no operator to be deleted
    assert "finalizers" not in kubectl.get(KIND, "kept")["metadata"]
    kubectl("delete", KIND, "kept", "gone", "--timeout=60s")
    assert len(topics_of(broker, kept)) == 3
    eventually(lambda: not topics_of(broker, gone), 30)
    eventually(lambda: not kubectl.list("deployments"), 60, interval=0.3)


def test_a_deletion_that_cannot_be_done_says_so_and_can_be_let_go(
    start_operator: Callable[..., OperatorProcess], kubectl: Kubectl, broker: EmbeddedBroker
) -> None:
    start_operator(kafka_timeout_seconds=2)
    kubectl.apply(scheduler("demo", "127.0.0.1:1", topics={"deletionPolicy": "Delete"}))
    eventually(lambda: kubectl.get(KIND, "demo")["metadata"].get("finalizers"), 60, interval=0.3)
    kubectl.delete(KIND, "demo")

    def message() -> str:
        return str(kubectl.condition(KIND, "demo", "Ready").get("message"))

    eventually(lambda: "The topics cannot be deleted" in message(), 60, message, interval=0.3)
    kubectl("patch", KIND, "demo", "--type=merge", "-p", _RETAIN)
    eventually(lambda: kubectl.find(KIND, "demo") is None, 60, interval=0.3)


_RETAIN = '{"spec": {"topics": {"deletionPolicy": "Retain"}}}'


def test_an_operator_that_was_killed_in_the_middle_is_carried_on_by_the_next(
    start_operator: Callable[..., OperatorProcess],
    kubectl: Kubectl,
    broker: EmbeddedBroker,
    app_id: str,
) -> None:
    names: list[str] = []
    for batch in range(3):
        # a Lease of its own for each: how long one waits for another is not the question here
        first = start_operator(lease_name=f"batch{batch}")
        _wait_for_metric(first, "punctual_operator_leading")
        new = [f"s{batch}{number}" for number in range(4)]
        servers = broker.bootstrap_servers
        kubectl.apply(*(scheduler(name, servers, appId=f"{app_id}-{name}") for name in new))
        names += new
        _wait_for_metric(first, "punctual_operator_api_writes_total", kind="ConfigMap")
        first.kill()
        if not all(kubectl.condition(KIND, name, "Ready") for name in new):
            break  # else it was too fast for us
    start_operator(lease_name="next")
    for name in names:
        kubectl.wait_condition(KIND, name, "Ready", timeout=120)
    # nothing was made twice, or under another name
    assert len(kubectl.list("deployments")) == 2 * len(names)


def _wait_for_metric(operator: OperatorProcess, name: str, **labels: str) -> None:
    eventually(lambda: operator.metric(name, labels) >= 1, 60, interval=0.01)


def test_one_of_two_operators_is_active_and_the_other_takes_over(
    start_operator: Callable[..., OperatorProcess],
    kubectl: Kubectl,
    broker: EmbeddedBroker,
    app_id: str,
) -> None:
    first = start_operator(lease_seconds=6)
    eventually(lambda: first.metric("punctual_operator_leading") == 1, 30)
    second = start_operator(lease_seconds=6, identity="second")
    assert second.page("/readyz")[1].strip() == "standing by"
    kubectl.apply(scheduler("demo", broker.bootstrap_servers, appId=app_id))
    kubectl.wait_condition(KIND, "demo", "Ready")
    assert second.metric("punctual_operator_api_writes_total") == 0
    first.kill()
    eventually(lambda: second.metric("punctual_operator_leading") == 1, 60)
    kubectl("scale", "psched/demo", "--replicas=2")
    eventually(lambda: kubectl.get(KIND, "demo")["status"]["readyReplicas"] == 2, 60, interval=0.3)
    # one that ends in good order lets go at once
    third = start_operator(lease_seconds=30)
    assert second.stop() == 0
    (lease,) = kubectl.list("leases")
    assert lease["spec"].get("holderIdentity") != "second"
    eventually(lambda: third.metric("punctual_operator_leading") == 1, 90)


def test_an_operator_that_loses_the_lease_ends(
    start_operator: Callable[..., OperatorProcess], kubectl: Kubectl
) -> None:
    operator = start_operator(lease_seconds=6, lease_name="contested")
    eventually(lambda: operator.metric("punctual_operator_leading") == 1, 30)
    taken = '{"spec": {"holderIdentity": "somebody else", "leaseDurationSeconds": 600}}'
    kubectl("patch", "lease", "contested", "--type=merge", "-p", taken)
    eventually(lambda: not operator.running, 60)
    assert "the Lease is lost" in operator.log()
