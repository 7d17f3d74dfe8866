"""The API server accepts Schedulers that make sense, and says what is wrong with the others."""

import json
from typing import Any

import pytest
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.kubectl import Kubectl, KubectlError
from support.kubernetes.schedulers import KIND, scheduler

SERVERS = "kafka.example:9092"


def dry_run(kubectl: Kubectl, body: dict[str, Any]) -> dict[str, Any]:
    """As the API server would store it."""
    text = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(body))
    stored: dict[str, Any] = json.loads(text)
    return stored


@pytest.fixture
def admin(control_plane: ControlPlane) -> Kubectl:
    """In the default namespace: nothing is stored by a dry run."""
    return control_plane.kubectl


def test_a_minimal_scheduler_gets_its_defaults(admin: Kubectl) -> None:
    body = scheduler("demo", SERVERS)
    body["spec"] = {"kafka": {"bootstrapServers": [SERVERS]}}
    spec = dry_run(admin, body)["spec"]
    assert spec["dispatchers"] == {
        "replicas": 2,
        "guarantee": "ExactlyOnce",
        "deliveryAttempts": 6,
        "retryBackoffMilliseconds": 1000,
        "onLostCheckpoint": "Refuse",
        "storage": {"size": "2Gi"},
    }
    assert spec["topics"]["deletionPolicy"] == "Retain"
    assert spec["topics"]["requests"] == {"partitions": 8, "cleanupPolicy": "Compact"}


TLS = {"caSecretRef": {"name": "kafka-ca"}}
SASL = {"mechanism": "ScramSha512", "credentialsSecretRef": {"name": "kafka-user"}}


@pytest.mark.parametrize(
    "spec",
    [
        {"kafka": {"tls": {}}},
        {"kafka": {"tls": TLS, "sasl": SASL, "properties": {"client.rack": "a"}}},
        {"kafka": {"tls": {"clientCertificateSecretRef": {"name": "client"}}}},
        {"intake": {"resources": {"requests": {"cpu": 1, "memory": "1.5Gi"}}}},
        {"console": {"access": "ReadWrite", "tokenSecretRef": {"name": "console"}}},
        {"destinations": ["orders-*", "reminders"], "horizonDays": 400},
        {"intake": {"sources": [{"topic": "old.schedules", "dialect": "KmsAvro"}]}},
        {
            "intake": {"executors": {"instances": 2, "cores": 1}},
            "podTemplate": {"serviceAccountName": "spark"},
        },
        {
            "podTemplate": {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 50,
                                "podAffinityTerm": {
                                    "topologyKey": "kubernetes.io/hostname",
                                    "labelSelector": {"matchLabels": {"a": "b"}},
                                },
                            }
                        ]
                    }
                },
                "tolerations": [{"key": "kafka", "operator": "Exists", "effect": "NoSchedule"}],
                "extraVolumes": [{"name": "krb", "secret": {"secretName": "keytab"}}],
                "extraVolumeMounts": [{"name": "krb", "mountPath": "/etc/krb"}],
                "extraEnv": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
            }
        },
    ],
)
def test_what_makes_sense_is_accepted_and_nothing_of_it_is_dropped(
    admin: Kubectl, spec: dict[str, Any]
) -> None:
    body = scheduler("demo", SERVERS, **spec)
    assert _contains(dry_run(admin, body)["spec"], body["spec"])


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"kafka": {"bootstrapServers": []}}, "should have at least 1 items"),
        ({"kafka": {"bootstrapServers": ["a:1,b:1"]}}, "should match"),
        ({"kafka": {"sasl": {"mechanism": "Plain"}}}, "credentialsSecretRef: Required value"),
        ({"kafka": {"sasl": {**SASL, "mechanism": "GSSAPI"}}}, "Unsupported value"),
        ({"kafka": {"properties": {"sasl.password": "x"}}}, "must not hold secrets"),
        ({"kafka": {"properties": {"ssl.key.pem": "x"}}}, "must not hold secrets"),
        ({"kafka": {"properties": {"security.protocol": "SSL"}}}, "must not repeat"),
        ({"appId": "no spaces"}, "should match"),
        ({"topics": {"requests": {"partitions": 257}}}, "less than or equal to 256"),
        ({"topics": {"actions": {"partitions": 0}}}, "greater than or equal to 1"),
        ({"topics": {"requests": {"config": {"cleanup.policy": "x"}}}}, "must not have"),
        ({"topics": {"deletionPolicy": "Orphan"}}, "Unsupported value"),
        ({"dispatchers": {"replicas": -1}}, "greater than or equal to 0"),
        ({"dispatchers": {"storage": {"size": "many"}}}, "should match"),
        ({"intake": {"resources": {"limits": {"cpu": "lots of"}}}}, "should match"),
        ({"intake": {"sources": [{"topic": "a b", "dialect": "Native"}]}}, "should match"),
        ({"intake": {"sources": [{"topic": "a", "dialect": "etf1"}]}}, "Unsupported value"),
        ({"intake": {"sparkProperties": {"master": "x"}}}, "must have names that begin with"),
        ({"intake": {"sparkProperties": {"spark.master": "x"}}}, "must not set `spark.master`"),
        (
            {"intake": {"executors": {"instances": 1, "cores": 1, "image": "spark"}}},
            "must have a core for each partition",
        ),
        (
            {"intake": {"executors": {"instances": 2, "cores": 2, "image": "spark"}}},
            "must name an account that may create pods",
        ),
        ({"console": {"access": "ReadWrite"}}, "`access` must be `ReadOnly` unless"),
        ({"destinations": ["a topic"]}, "should match"),
        ({"podTemplate": {"labels": {"app.kubernetes.io/name": "x"}}}, "must not have names"),
        ({"podTemplate": {"extraVolumes": [{"name": "v"}]}}, "must be exactly one of"),
        (
            {"podTemplate": {"extraVolumes": [{"name": "data", "emptyDir": {}}]}},
            "must not be called",
        ),
        (
            {"podTemplate": {"extraEnv": [{"name": "A", "value": "1", "valueFrom": {}}]}},
            "may not have both",
        ),
        ({"replicas": 3}, "unknown field"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(
    admin: Kubectl, spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(KubectlError, match=complaint.replace("(", r"\(")):
        dry_run(admin, scheduler("demo", SERVERS, **spec))


@pytest.mark.parametrize("name", ["a" * 51, "1st", "with.dots"])
def test_a_name_that_no_service_could_have_is_refused(admin: Kubectl, name: str) -> None:
    with pytest.raises(KubectlError, match=r"`metadata.name` must be at most 50"):
        dry_run(admin, scheduler(name, SERVERS))


def test_the_app_id_cannot_change_but_may_be_written_out(kubectl: Kubectl) -> None:
    kubectl.apply(scheduler("demo", SERVERS))
    kubectl.apply(scheduler("demo", SERVERS, appId="demo"))
    with pytest.raises(KubectlError, match=r"`spec.appId` must not change"):
        kubectl.apply(scheduler("demo", SERVERS, appId="other"))


def test_partition_counts_are_left_to_the_operator_so_that_the_rest_of_an_edit_is_kept(
    kubectl: Kubectl,
) -> None:
    kubectl.apply(scheduler("demo", SERVERS))
    kubectl.apply(scheduler("demo", SERVERS, topics={"requests": {"partitions": 4}}))


def test_scale_changes_the_dispatchers(kubectl: Kubectl) -> None:
    kubectl.apply(scheduler("demo", SERVERS))
    kubectl("scale", "psched/demo", "--replicas=5")
    assert kubectl.get(KIND, "demo")["spec"]["dispatchers"]["replicas"] == 5


def test_short_name_category_and_explanations_are_there(kubectl: Kubectl) -> None:
    kubectl.apply(scheduler("demo", SERVERS))
    header, row = kubectl("get", "psched").splitlines()
    assert header.split() == [
        *("NAME", "READY", "REASON", "DISPATCHERS", "PENDING", "OVERDUE", "NEXT-DUE", "AGE"),
    ]
    assert row.split()[0] == "demo"
    assert "demo" in kubectl("get", "punctual")
    told = kubectl("explain", f"{KIND}.spec.topics.deletionPolicy")
    assert "ENUM:" in told
    assert "what becomes of the topics" in " ".join(told.split())


def _contains(stored: Any, given: Any) -> bool:
    if isinstance(given, dict):
        return all(name in stored and _contains(stored[name], given[name]) for name in given)
    if isinstance(given, list):
        return len(stored) == len(given) and all(map(_contains, stored, given))
    return bool(stored == given)
