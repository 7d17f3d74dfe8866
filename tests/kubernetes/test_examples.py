"""Every example is applied, as it stands but for where Kafka is, and becomes what it says."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from punctual_worker.local.broker import EmbeddedBroker
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.operator_process import OperatorProcess
from support.kubernetes.schedulers import KIND
from support.scram_broker import ScramBroker

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def test_there_are_those_that_people_begin_with() -> None:
    assert [path.stem for path in EXAMPLES] == [
        *("minimal", "production", "scram-and-tls", "spark-executors"),
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_applied_and_becomes_ready(
    path: Path,
    operator: OperatorProcess,
    kubectl: Kubectl,
    broker: EmbeddedBroker,
    request: pytest.FixtureRequest,
) -> None:
    kubectl("apply", "--dry-run=server", "-f", str(path))
    objects = documents(path)
    (wanted,) = [each for each in objects if each["kind"] == "Scheduler"]
    name, spec = wanted["metadata"]["name"], wanted["spec"]
    if "tls" in spec["kafka"]:
        secured: ScramBroker = request.getfixturevalue("scram_broker")
        spec["kafka"]["bootstrapServers"] = [secured.bootstrap_servers]
        (authority,) = [each for each in objects if each["metadata"]["name"] == "kafka-ca"]
        authority["stringData"]["ca.crt"] = secured.authority
    else:
        spec["kafka"]["bootstrapServers"] = [broker.bootstrap_servers]
    if spec.get("topics", {}).get("replicationFactor"):
        # there is one broker here, and three replicas are wanted: the operator says so
        kubectl.apply(*objects)
        told = kubectl.wait_condition(KIND, name, "TopicsReady", "False")
        assert "replication" in told["message"].lower()
        spec["topics"]["replicationFactor"] = 1
    kubectl.apply(*objects)
    kubectl.wait_condition(KIND, name, "Ready", timeout=120)
    kubectl.wait_condition(KIND, name, "ConsoleReady")
    deployment = kubectl.get("deployment", f"{name}-dispatcher")
    assert deployment["spec"]["replicas"] == spec.get("dispatchers", {}).get("replicas", 2)
