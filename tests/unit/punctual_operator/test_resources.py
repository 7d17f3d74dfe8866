"""What should exist for a Scheduler, as whole objects."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from punctual_operator.api.names import CONFIG_HASH, PARTS, SCHEDULER_LABEL, PartName
from punctual_operator.api.types import Scheduler
from punctual_operator.resources.children import build_children
from punctual_operator.resources.configs import config_text, part_settings
from punctual_operator.resources.pods import Defaults
from punctual_operator.resources.secrets import open_properties, secret_properties
from punctual_worker.kafka_clients import java_config
from punctual_worker.settings import Settings

Make = Callable[..., Scheduler]
SECURED = {
    "tls": {
        "caSecretRef": {"name": "ca"},
        "clientCertificateSecretRef": {"name": "client"},
        "hostnameVerification": "Disabled",
    },
    "sasl": {"mechanism": "ScramSha512", "credentialsSecretRef": {"name": "user"}},
    "properties": {"client.rack": "a"},
}


def build(scheduler: Scheduler, **hashes: str) -> dict[tuple[str, str], dict[str, Any]]:
    children = build_children(
        scheduler,
        secret_hashes=hashes,  # type: ignore[arg-type]
        defaults=Defaults("worker:1"),
    )
    return {(child["kind"], child["metadata"]["name"]): child for child in children}


def pod(children: dict[tuple[str, str], dict[str, Any]], part: str) -> dict[str, Any]:
    found: dict[str, Any] = children["Deployment", f"demo-{part}"]["spec"]["template"]
    return found


@pytest.mark.parametrize("part", PARTS)
def test_the_workers_understand_every_setting_they_get(
    make_scheduler: Make, part: PartName
) -> None:
    scheduler = make_scheduler(
        kafka=SECURED,
        destinations=["a-*"],
        history="Enabled",
        intake={
            "mode": "MicroBatch",
            "sources": [{"topic": "old", "dialect": "KmsAvro"}],
            "sparkProperties": {"spark.x": "1"},
            "executors": {"instances": 2, "cores": 8, "image": "spark"},
        },
        dispatchers={"guarantee": "AtLeastOnce", "onLostCheckpoint": "Deliver"},
        console={
            "userHeader": "x-user",
            "trustedProxies": ["10.0.0.0/8"],
            "hosts": ["console.example"],
        },
    )
    settings = part_settings(scheduler, part)
    understood = Settings.model_validate(yaml.safe_load(config_text(settings)))
    assert understood.app_id == "demo"
    for name, value in settings.items():
        if name != "kafka":
            got = getattr(understood, name)
            assert (list(got) if isinstance(got, tuple) else got) == value


def test_secrets_are_variables_from_secrets_and_never_in_a_config_map(
    make_scheduler: Make,
) -> None:
    children = build(make_scheduler(kafka=SECURED))
    env = {each["name"]: each for each in pod(children, "intake")["spec"]["containers"][0]["env"]}
    reference = env["PUNCTUAL_KAFKA_SASL_PASSWORD"]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "user", "key": "password"}
    assert env["PUNCTUAL_KAFKA_SSL_CA_PEM"]["valueFrom"]["secretKeyRef"]["key"] == "ca.crt"
    config = yaml.safe_load(children["ConfigMap", "demo-intake"]["data"]["config.yaml"])
    assert config["kafka"] == {
        "client.rack": "a",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_the_connection_serves_java_and_librdkafka_alike(make_scheduler: Make) -> None:
    kafka = make_scheduler(kafka=SECURED).spec.kafka
    data = {
        "ca": {"ca.crt": "CA"},
        "client": {"tls.crt": "CERT", "tls.key": "KEY"},
        "user": {"username": "ann", "password": "pw"},
    }
    properties = open_properties(kafka) | secret_properties(kafka, data)
    java = java_config(Settings.model_validate({"kafka": properties}))
    assert java["security.protocol"] == "SASL_SSL"
    assert java["ssl.truststore.certificates"] == "CA"
    assert java["ssl.keystore.key"] == "KEY"
    assert 'username="ann"' in java["sasl.jaas.config"]


@pytest.mark.parametrize(
    ("change", "touched"),
    [
        ({"horizonDays": 5}, {"intake"}),
        ({"destinations": ["x"]}, {"intake"}),
        ({"intake": {"resources": {"limits": {"cpu": "2"}}}}, {"intake"}),
        ({"traceHeaders": "Disabled"}, {"dispatcher"}),
        ({"dispatchers": {"storage": {"size": "9Gi"}}}, {"dispatcher"}),
        ({"dispatchers": {"replicas": 7}}, set()),
        ({"history": "Enabled"}, {"dispatcher", "console"}),
        ({"console": {"payloads": "Hidden"}}, {"console"}),
        ({"topics": {"deletionPolicy": "Delete"}}, set()),
        ({"topics": {"requests": {"partitions": 99}}}, set()),
        ({"networkPolicy": "Enabled"}, set()),
        ({"logging": {"level": "Debug"}}, {"intake", "dispatcher", "console"}),
        ({"podTemplate": {"priorityClassName": "high"}}, {"intake", "dispatcher", "console"}),
    ],
)
def test_a_change_replaces_the_pods_that_it_touches_and_no_others(
    make_scheduler: Make, change: dict[str, Any], touched: set[str]
) -> None:
    before, after = build(make_scheduler()), build(make_scheduler(**change))
    assert {part for part in PARTS if pod(before, part) != pod(after, part)} == touched


def test_a_changed_secret_replaces_the_pods_that_use_it(make_scheduler: Make) -> None:
    before = build(make_scheduler(), intake="1", dispatcher="1", console="1")
    after = build(make_scheduler(), intake="1", dispatcher="1", console="2")
    assert {part for part in PARTS if pod(before, part) != pod(after, part)} == {"console"}


def test_pods_are_locked_down_and_what_the_user_says_wins(make_scheduler: Make) -> None:
    template = {
        "securityContext": {"readOnlyRootFilesystem": False},
        "podSecurityContext": {"fsGroup": 7},
        "image": "mine:2",
        "imagePullPolicy": "Always",
        "extraEnv": [{"name": "PUNCTUAL_DATA_DIR", "value": "/x"}, {"name": "TZ", "value": "UTC"}],
    }
    spec = pod(build(make_scheduler(podTemplate=template)), "dispatcher")["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "fsGroup": 7,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": False,
    }
    assert (container["image"], container["imagePullPolicy"]) == ("mine:2", "Always")
    assert spec["automountServiceAccountToken"] is False
    names = [each["name"] for each in container["env"]]
    assert "TZ" in names
    assert names.count("PUNCTUAL_DATA_DIR") == 1


def test_a_storage_class_gives_each_dispatcher_a_volume_that_goes_with_it(
    make_scheduler: Make,
) -> None:
    storage = {"size": "5Gi", "storageClassName": "fast"}
    spec = pod(build(make_scheduler(dispatchers={"storage": storage})), "dispatcher")["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "data"]
    claim = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["storageClassName"] == "fast"
    assert claim["resources"] == {"requests": {"storage": "5Gi"}}


def test_executors_make_intake_a_driver_that_tells_where_it_is(make_scheduler: Make) -> None:
    scheduler = make_scheduler(
        intake={"executors": {"instances": 2, "cores": 4, "image": "spark:4.2.0"}},
        podTemplate={"serviceAccountName": "spark"},
        networkPolicy="Enabled",
    )
    children = build(scheduler)
    files = children["ConfigMap", "demo-intake"]["data"]
    settings = yaml.safe_load(files["config.yaml"])
    assert settings["intake_master"] == "k8s"
    assert settings["spark"]["spark.executor.cores"] == "4"
    assert settings["spark"]["spark.kubernetes.namespace"] == "team"
    spec = pod(children, "intake")["spec"]
    assert spec["serviceAccountName"] == "spark"
    assert spec["automountServiceAccountToken"] is True
    assert "SPARK_LOCAL_HOSTNAME" in [each["name"] for each in spec["containers"][0]["env"]]
    assert ("ServiceAccount", "demo") not in children
    rules = children["NetworkPolicy", "demo"]["spec"]["ingress"]
    (sparks,) = (peer["podSelector"] for rule in rules for peer in rule.get("from", ()))
    assert sparks["matchLabels"] == {SCHEDULER_LABEL: "demo"}
    (component,) = sparks["matchExpressions"]
    assert set(component["values"]) == {"intake", "executor"}  # not the console
    # whoever reaches a driver without a secret could have code run where the token is
    assert settings["spark"]["spark.authenticate"] == "true"
    assert settings["spark"]["spark.network.crypto.enabled"] == "true"
    template = yaml.safe_load(files["executor.yaml"])
    assert "command" not in template["spec"]["containers"][0]  # an image of Spark's has its own


def test_executor_pods_are_as_confined_as_the_others_and_have_no_rights(
    make_scheduler: Make,
) -> None:
    scheduler = make_scheduler(
        intake={
            "executors": {"instances": 2, "cores": 4},
            "sparkProperties": {"spark.kubernetes.executor.request.cores": "1"},
        },
        podTemplate={
            "serviceAccountName": "spark",
            "imagePullPolicy": "Always",
            "labels": {"team": "a"},
            "nodeSelector": {"disk": "fast"},
            "extraVolumes": [{"name": "ca", "emptyDir": {}}],
            "extraVolumeMounts": [
                {"name": "ca", "mountPath": "/ca"},
                {"name": "data", "mountPath": "/elsewhere"},
            ],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ],
        },
    )
    children = build(scheduler)
    files = children["ConfigMap", "demo-intake"]["data"]
    spark = yaml.safe_load(files["config.yaml"])["spark"]
    assert spark["spark.kubernetes.container.image"] == "worker:1"
    assert spark["spark.kubernetes.container.image.pullPolicy"] == "Always"
    assert spark["spark.kubernetes.executor.request.cores"] == "1"
    assert spark["spark.kubernetes.executor.podTemplateFile"] == "/etc/punctual/executor.yaml"
    template = yaml.safe_load(files["executor.yaml"])
    labels = template["metadata"]["labels"]
    assert labels["team"] == "a"
    assert labels[SCHEDULER_LABEL] == "demo"
    for deployment in ("demo-intake", "demo-dispatcher"):
        selector = children["Deployment", deployment]["spec"]["selector"]["matchLabels"]
        assert not selector.items() <= labels.items()
    (container,) = template["spec"]["containers"]
    own = pod(children, "intake")["spec"]
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["securityContext"] == own["securityContext"]
    assert container["securityContext"] == own["containers"][0]["securityContext"]
    assert template["spec"]["nodeSelector"] == {"disk": "fast"}
    # `data` is the workers' own
    assert [mount["name"] for mount in container["volumeMounts"]] == ["tmp", "ca"]
    assert container["command"] == ["punctual"]
    (spread,) = template["spec"]["topologySpreadConstraints"]
    selector = spread["labelSelector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert not selector.items() <= pod(children, "intake")["metadata"]["labels"].items()


def test_a_change_of_how_executors_look_replaces_intake_which_makes_them(
    make_scheduler: Make,
) -> None:
    executors = {"executors": {"instances": 1, "cores": 8}}
    before, after = (
        build(make_scheduler(intake=executors, podTemplate={"annotations": {"note": note}}))
        for note in ("a", "b")
    )
    hashes = [pod(one, "intake")["metadata"]["annotations"][CONFIG_HASH] for one in (before, after)]
    assert hashes[0] != hashes[1]


def test_without_a_console_there_is_nothing_of_it(make_scheduler: Make) -> None:
    children = build(make_scheduler(console={"state": "Disabled"}))
    assert not [name for _, name in children if name == "demo-console"]
