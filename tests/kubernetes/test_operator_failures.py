"""What is wrong with Kafka, its credentials or the cluster is told, and harms nobody else."""

import time
from collections.abc import Callable, Iterator

import pytest
from punctual_worker.contract.topics import TopicNames
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.local.ports import claim_port
from punctual_worker.topics.admin import TopicAdmin
from support.eventually import eventually
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.operator_process import OperatorProcess
from support.kubernetes.schedulers import KIND, scheduler

PASSWORD = "correct horse battery"
SASL = {"mechanism": "Plain", "credentialsSecretRef": {"name": "user"}}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that asks who one is: `ann` may do everything, `bob` nothing."""
    plain, sasl, controller = (claim_port("127.0.0.1", 0) for _ in range(3))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    extra = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},"
            f"CONTROLLER://127.0.0.1:{controller}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
        ),
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f'{login} required user_ann="{PASSWORD}" user_bob="{PASSWORD}";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ann",
    }
    with EmbeddedBroker(tmp_path_factory.mktemp("guarded"), plain, extra_config=extra):
        yield f"127.0.0.1:{sasl}"


def set_user(kubectl: Kubectl, name: str, password: str) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "user"},
        "stringData": {"username": name, "password": password},
    }
    kubectl.apply(secret)


def ready(kubectl: Kubectl, name: str, reason: str) -> str:
    """The message of Ready, once it has this reason."""

    def told() -> str | None:
        found = kubectl.condition(KIND, name, "Ready")
        return found["message"] if found.get("reason") == reason else None

    return eventually(told, 90, lambda: kubectl("get", "psched", "-o", "yaml"), interval=0.3)


def test_secrets_logins_and_rights_are_told_apart_until_all_is_well(
    start_operator: Callable[..., OperatorProcess], kubectl: Kubectl, guarded: str, app_id: str
) -> None:
    operator = start_operator(kafka_timeout_seconds=2, resync_seconds=5)
    wanted = scheduler("demo", guarded, appId=app_id, kafka={"sasl": SASL})
    kubectl.apply(wanted)
    assert "There is no Secret user" in ready(kubectl, "demo", "SecretNotFound")
    kubectl("create", "secret", "generic", "user", "--from-literal=username=ann")
    kubectl("annotate", "psched", "demo", "hurry=1")
    assert "has no entry password" in ready(kubectl, "demo", "SecretKeyMissing")
    set_user(kubectl, "ann", "a wrong one")
    kubectl("annotate", "psched", "demo", "hurry=2", "--overwrite")
    assert "refuses the connection" in ready(kubectl, "demo", "AuthenticationFailed")
    set_user(kubectl, "bob", PASSWORD)
    kubectl("annotate", "psched", "demo", "hurry=3", "--overwrite")
    assert "may not create the topic" in ready(kubectl, "demo", "AuthorizationFailed")
    assert kubectl.find("deployment", "demo-intake") is None
    set_user(kubectl, "ann", PASSWORD)
    kubectl("annotate", "psched", "demo", "hurry=4", "--overwrite")
    ready(kubectl, "demo", "Serving")
    shown = kubectl("get", "psched,deployments,configmaps,events", "-o", "yaml") + operator.log()
    assert PASSWORD not in shown
    assert "a wrong one" not in shown
    degraded = kubectl.condition(KIND, "demo", "Degraded")
    assert degraded["status"] == "False"


def test_a_broker_that_does_not_answer_is_tried_again_and_holds_up_nobody_else(
    start_operator: Callable[..., OperatorProcess],
    kubectl: Kubectl,
    broker: EmbeddedBroker,
    app_id: str,
) -> None:
    operator = start_operator(kafka_timeout_seconds=12)
    kubectl.apply(*(scheduler(f"lost{n}", f"127.0.0.1:{n}") for n in (1, 2, 3)))
    kubectl.apply(scheduler("fine", broker.bootstrap_servers, appId=app_id))
    ready(kubectl, "fine", "Serving")
    assert "cannot be reached" in ready(kubectl, "lost1", "KafkaUnreachable")
    # that one was ready while the others were still being tried for the first time
    times = {
        name: kubectl.condition(KIND, name, "Ready")["lastTransitionTime"]
        for name in ("fine", "lost1")
    }
    assert times["fine"] < times["lost1"]
    failed = {"result": "failed"}
    eventually(lambda: operator.metric("punctual_operator_reconciles_total", failed) >= 3, 60)


def test_workers_are_not_touched_while_kafka_is_away_for_the_operator(
    start_operator: Callable[..., OperatorProcess],
    kubectl: Kubectl,
    broker: EmbeddedBroker,
    app_id: str,
) -> None:
    start_operator(kafka_timeout_seconds=2)
    kubectl.apply(scheduler("demo", broker.bootstrap_servers, appId=app_id))
    ready(kubectl, "demo", "Serving")
    away = scheduler("demo", "127.0.0.1:1", appId=app_id, dispatchers={"replicas": 2})
    kubectl.apply(away)
    ready(kubectl, "demo", "KafkaUnreachable")
    # what the spec says of the workers still counts: the topics were there before
    eventually(lambda: kubectl.get("deployment", "demo-dispatcher")["spec"]["replicas"] == 2, 60)
    assert len(kubectl.get(KIND, "demo")["status"]["topics"]) == 3


def test_a_pod_that_does_not_start_is_explained(
    start_operator: Callable[..., OperatorProcess],
    kubectl: Kubectl,
    live_namespace: str,
    broker: EmbeddedBroker,
    app_id: str,
) -> None:
    start_operator(resync_seconds=2)
    wrong = {"spark.driver.memory": "1k"}  # Spark refuses to start with so little
    kubectl.apply(
        scheduler(
            "demo",
            broker.bootstrap_servers,
            appId=app_id,
            intake={"sparkProperties": wrong},
            dispatchers={"replicas": 0},
        )
    )
    message = ready(kubectl, "demo", "IntakePodsNotReady")
    assert "CrashLoopBackOff" in message
    degraded = kubectl.condition(KIND, "demo", "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "IntakePodsNotReady")


def test_the_older_of_two_with_one_app_id_has_it_until_it_is_gone(
    operator: OperatorProcess, kubectl: Kubectl, broker: EmbeddedBroker, app_id: str
) -> None:
    kubectl.apply(scheduler("older", broker.bootstrap_servers, appId=app_id))
    ready(kubectl, "older", "Serving")
    # creation times are in whole seconds
    created = kubectl.get(KIND, "older")["metadata"]["creationTimestamp"]
    eventually(lambda: _now() > created, 10)
    kubectl.apply(
        scheduler(
            "younger", broker.bootstrap_servers, appId=app_id, topics={"deletionPolicy": "Delete"}
        )
    )
    message = ready(kubectl, "younger", "AppIdConflict")
    assert "older" in message
    assert kubectl.find("deployment", "younger-intake") is None
    # the younger's wish to delete the topics is not heard: they are not its own
    kubectl.delete(KIND, "younger", wait=True)
    topics = TopicAdmin({"bootstrap.servers": broker.bootstrap_servers})
    assert TopicNames(app_id).requests in topics.describe(TopicNames(app_id).all)
    kubectl.apply(scheduler("heir", broker.bootstrap_servers, appId=app_id))
    ready(kubectl, "heir", "AppIdConflict")
    kubectl.delete(KIND, "older", wait=True)
    ready(kubectl, "heir", "Serving")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
