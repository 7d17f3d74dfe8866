"""What the chart renders, template by template."""

import json
import re
from typing import Any

import pytest
import yaml
from punctual_operator.settings import ENV_PREFIX, load_settings
from support.kubernetes.helm import CHART, Helm, HelmError
from support.kubernetes.manifests import Manifest, all_of, container_of, kinds, the, variables_of

CRD_FILE = CHART.parents[1] / "crds" / "scheduler.yaml"
EVERYTHING: dict[str, Any] = {
    "replicaCount": 2,
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "grafanaDashboard": {"enabled": True},
    },
}


@pytest.fixture(scope="module")
def default(helm: Helm) -> list[Manifest]:
    return helm.render()


@pytest.fixture(scope="module")
def everything(helm: Helm) -> list[Manifest]:
    return helm.render(EVERYTHING)


def test_helm_finds_nothing_to_complain_about(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), values=EVERYTHING)


def test_by_default_there_is_the_operator_with_its_rights_and_nothing_optional(
    default: list[Manifest],
) -> None:
    assert kinds(default) == [
        "ClusterRole/punctual-edit",
        "ClusterRole/punctual-operator",
        "ClusterRole/punctual-view",
        "ClusterRoleBinding/punctual-operator",
        "CustomResourceDefinition/schedulers.punctual.dev",
        "Deployment/punctual-operator",
        "Pod/punctual-operator-test",
        "Role/punctual-operator-lease",
        "RoleBinding/punctual-operator-lease",
        "Service/punctual-operator-metrics",
        "ServiceAccount/punctual-operator",
    ]


def test_with_everything_switched_on_the_rest_is_there(
    default: list[Manifest], everything: list[Manifest]
) -> None:
    assert set(kinds(everything)) - set(kinds(default)) == {
        "ConfigMap/punctual-dashboard",
        "NetworkPolicy/punctual-operator",
        "PodDisruptionBudget/punctual-operator",
        "PodMonitor/punctual-workers",
        "PrometheusRule/punctual",
        "ServiceMonitor/punctual-operator",
    }


def test_everything_is_labelled_and_in_the_namespace_of_the_release(
    everything: list[Manifest],
) -> None:
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    for each in everything:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "punctual"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        if each["kind"] not in cluster_wide:
            assert each["metadata"]["namespace"] == "default", each["kind"]


def test_the_definition_in_the_chart_is_the_one_in_crds(default: list[Manifest]) -> None:
    original = yaml.safe_load(CRD_FILE.read_text())
    assert yaml.safe_load((CHART / "files" / "scheduler.yaml").read_text()) == original, (
        "run: make chart"
    )
    rendered = the(default, "CustomResourceDefinition")
    assert rendered["spec"] == original["spec"]
    assert rendered["metadata"]["name"] == original["metadata"]["name"]
    assert rendered["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_definition_can_go_with_the_chart_or_be_left_out(helm: Helm) -> None:
    going = the(helm.render({"crds": {"keep": False}}), "CustomResourceDefinition")
    assert "helm.sh/resource-policy" not in going["metadata"].get("annotations", {})
    assert not all_of(helm.render({"crds": {"enabled": False}}), "CustomResourceDefinition")


def test_the_operators_pod_keeps_to_the_restricted_standard(default: list[Manifest]) -> None:
    pod = the(default, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_the_operator_understands_all_its_variables(helm: Helm) -> None:
    values = {
        "watchNamespaces": ["a", "b"],
        "worker": {"image": {"repository": "registry/worker", "pullPolicy": "Always"}},
        "operator": {
            "resyncSeconds": 30,
            "concurrency": 4,
            "kafkaTimeoutSeconds": 5,
            "leaseSeconds": 20,
            "logFormat": "text",
            "logLevel": "debug",
        },
    }
    variables = variables_of(the(helm.render(values), "Deployment"))
    assert variables[f"{ENV_PREFIX}HTTP_HOST"] == "status.podIP"
    assert variables[f"{ENV_PREFIX}LEASE_NAMESPACE"] == "metadata.namespace"
    settings = load_settings(variables)
    known = {ENV_PREFIX + name.upper() for name in type(settings).model_fields}
    assert set(variables) <= known
    assert settings.watch_namespaces == ("a", "b")
    assert settings.worker_image.startswith("registry/worker:")
    assert settings.image_pull_policy == "Always"
    assert settings.lease_name == "punctual-operator"
    assert (settings.resync_seconds, settings.concurrency, settings.lease_seconds) == (30, 4, 20)
    assert (settings.log_format, settings.log_level) == ("text", "debug")
    assert settings.kafka_timeout_seconds == 5


def test_images_go_by_digest_then_by_tag_then_by_the_charts_version(helm: Helm) -> None:
    digest = "sha256:" + "a" * 64
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for image, expected in (
        ({"repository": "r/o", "tag": "1", "digest": digest}, f"r/o@{digest}"),
        ({"repository": "host:5000/o", "tag": "1"}, "host:5000/o:1"),
        ({"repository": "r/o"}, f"r/o:{version}"),
    ):
        deployment = the(helm.render({"image": image}), "Deployment")
        assert container_of(deployment)["image"] == expected


def test_what_people_need_of_a_pod_is_passed_through(helm: Helm) -> None:
    parts: dict[str, Any] = {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
        "terminationGracePeriodSeconds": 7,
    }
    values = {
        **parts,
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "c"}],
        "extraVolumes": [{"name": "ca", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
        "serviceAccount": {"annotations": {"role": "d"}},
    }
    rendered = helm.render(values)
    template = the(rendered, "Deployment")["spec"]["template"]
    assert {name: template["spec"][name] for name in parts} == parts
    assert template["metadata"]["labels"]["team"] == "a"
    check = the(rendered, "Pod")
    assert check["metadata"]["labels"]["team"] == "a"
    assert check["metadata"]["annotations"]["note"] == "b"
    assert check["spec"]["priorityClassName"] == parts["priorityClassName"]
    assert template["metadata"]["annotations"] == {"note": "b"}
    assert {"name": "HTTPS_PROXY", "value": "c"} in template["spec"]["containers"][0]["env"]
    assert [volume["name"] for volume in template["spec"]["volumes"]] == ["tmp", "ca"]
    assert the(rendered, "ServiceAccount")["metadata"]["annotations"] == {"role": "d"}


def test_pods_are_found_by_labels_that_no_value_can_change(helm: Helm) -> None:
    stolen = {"podLabels": {"app.kubernetes.io/component": "mine"}}
    deployment = the(helm.render(stolen), "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()


def test_with_a_list_of_namespaces_rights_end_at_their_borders(helm: Helm) -> None:
    rendered = helm.render({"watchNamespaces": ["a", "b"], "rbac": {"aggregateRoles": False}})
    assert not all_of(rendered, "ClusterRole")
    assert not all_of(rendered, "ClusterRoleBinding")
    places = [(role["metadata"]["namespace"]) for role in all_of(rendered, "Role")]
    assert sorted(places) == ["a", "b", "default"]  # the last for the Lease
    for binding in all_of(rendered, "RoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "punctual-operator", "namespace": "default"}
        ]


def test_no_rule_says_everything(everything: list[Manifest]) -> None:
    for role in all_of(everything, "ClusterRole") + all_of(everything, "Role"):
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]


def test_the_operators_rights_are_those_that_the_documentation_lists(
    default: list[Manifest],
) -> None:
    text = (CHART.parents[1] / "docs" / "kubernetes.md").read_text()
    documented = {
        (group if group != "core" else "", resource, verb)
        for group, resources, verbs in re.findall(
            r"^\| `?([\w.]+)`? \| (`[^|]+) \| ([a-z, ]+) \|", text, re.MULTILINE
        )
        for resource in re.findall(r"`([\w/]+)`", resources)
        for verb in verbs.split(", ")
    }
    assert ("", "secrets", "get") in documented
    granted = {
        (group, resource, verb)
        for rule in the(default, "ClusterRole", "punctual-operator")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == documented


def test_accounts_and_roles_of_ones_own(helm: Helm) -> None:
    own = {"serviceAccount": {"create": False, "name": "mine"}, "rbac": {"create": False}}
    rendered = helm.render(own)
    assert not all_of(rendered, "ServiceAccount") + all_of(rendered, "Role")
    pod = the(rendered, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "mine"
    with pytest.raises(HelmError, match=r"serviceAccount\.name: wanted"):
        helm.render({"serviceAccount": {"create": False}})


def test_one_replica_is_replaced_before_the_next_one_starts(everything: list[Manifest]) -> None:
    deployment = the(everything, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    budget = the(everything, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == deployment["spec"]["selector"]


def test_service_monitors_and_policy_meet_the_pods(everything: list[Manifest]) -> None:
    deployment = the(everything, "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    service = the(everything, "Service")
    assert service["spec"]["selector"] == selector
    assert service["spec"]["ports"][0]["targetPort"] == container_of(deployment)["ports"][0]["name"]
    monitor = the(everything, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    policy = the(everything, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == selector
    assert policy["policyTypes"] == ["Ingress"]


def test_workers_are_scraped_where_the_operator_looks_after_them(helm: Helm) -> None:
    monitored: dict[str, Any] = {"metrics": {"serviceMonitor": {"enabled": True}}}
    anywhere = the(helm.render(monitored), "PodMonitor")["spec"]
    assert anywhere["namespaceSelector"] == {"any": True}
    some = the(helm.render({**monitored, "watchNamespaces": ["a"]}), "PodMonitor")["spec"]
    assert some["namespaceSelector"] == {"matchNames": ["a"]}
    targets = {each["targetLabel"] for each in some["podMetricsEndpoints"][0]["relabelings"]}
    assert targets == {"scheduler", "component"}
    lost = {"metrics": {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}}
    with pytest.raises(HelmError, match=r"needs metrics\.service\.enabled"):
        helm.render(lost)


def test_monitoring_objects_carry_the_labels_that_prometheus_and_grafana_select_by(
    helm: Helm,
) -> None:
    values = {
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
            "grafanaDashboard": {"enabled": True, "annotations": {"folder": "Kafka"}},
        }
    }
    rendered = helm.render(values)
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        assert the(rendered, kind)["metadata"]["labels"]["release"] == "prometheus"
    dashboard = the(rendered, "ConfigMap")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"folder": "Kafka"}
    original = json.loads((CHART / "files" / "dashboard.json").read_text())
    assert json.loads(dashboard["data"]["punctual.json"]) == original


def test_the_test_pod_is_the_operators_image_and_account_and_nobody_takes_it_for_an_operator(
    helm: Helm, default: list[Manifest], everything: list[Manifest]
) -> None:
    test, deployment = the(default, "Pod"), the(default, "Deployment")
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    template = deployment["spec"]["template"]
    for name in ("serviceAccountName", "securityContext"):
        assert test["spec"][name] == template["spec"][name]
    (container,) = test["spec"]["containers"]
    own = container_of(deployment)
    for name in ("image", "imagePullPolicy", "securityContext", "volumeMounts"):
        assert container[name] == own[name]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= test["metadata"]["labels"].items()
    assert container["command"] == ["punctual-operator", "check"]
    service = the(default, "Service")["metadata"]["name"]
    assert container["args"] == [f"http://{service}.default.svc:8080"]
    # what cannot be reached is not asked: the Lease tells enough
    for values in (
        {"metrics": {"service": {"enabled": False}}},
        {"networkPolicy": {"enabled": True, "from": [{"podSelector": {}}]}},
    ):
        assert "args" not in the(helm.render(values), "Pod")["spec"]["containers"][0]
    assert "args" in the(everything, "Pod")["spec"]["containers"][0]


def test_names_follow_the_release_and_stay_short(helm: Helm) -> None:
    long = helm("template", "r" * 53, str(CHART), values={})
    for each in yaml.safe_load_all(long):
        if each:
            assert len(each["metadata"]["name"]) <= 63
    named = helm.render({"fullnameOverride": "clock"})
    assert the(named, "Deployment")["metadata"]["name"] == "clock-operator"
