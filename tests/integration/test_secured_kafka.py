"""One set of TLS and SASL settings opens a secured Kafka to librdkafka and to Java alike."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from punctual_worker.kafka_clients import java_config, librdkafka_config
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.local.jars import jar_paths
from punctual_worker.local.java import find_java
from punctual_worker.local.ports import claim_port
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin, TopicsError

PASSWORD = 'quo"te\\d'
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and one certificate by it that serves broker and client."""
    directory = tmp_path_factory.mktemp("certificates")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out request -subj /CN=punctual",
        "x509 -req -in request -CA ca.pem -CAkey ca.key -out cert.pem -days 2 -extfile names",
    ):
        subprocess.run(
            ["openssl", *command.split()], cwd=directory, check=True, capture_output=True
        )
    return directory


@pytest.fixture(scope="module")
def secured(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings for a broker that wants a certificate and a password."""
    port = claim_port("127.0.0.1", 0)
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    plain, controller = claim_port("127.0.0.1", 0), claim_port("127.0.0.1", 0)
    pem = {name: (certificates / f"{name}.pem").read_text() for name in ("ca", "cert", "key")}
    extra = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{port},"
            f"CONTROLLER://127.0.0.1:{controller}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL"
        ),
        "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": (f'{login} required user_ann="{escaped}";'),
        "listener.name.secured.ssl.client.auth": "required",
        "listener.name.secured.ssl.keystore.type": "PEM",
        "listener.name.secured.ssl.keystore.certificate.chain": pem["cert"],
        "listener.name.secured.ssl.keystore.key": pem["key"],
        "listener.name.secured.ssl.truststore.type": "PEM",
        "listener.name.secured.ssl.truststore.certificates": pem["ca"],
    }
    settings = Settings.model_validate(
        {
            "bootstrap_servers": f"127.0.0.1:{port}",
            "kafka": {
                "security.protocol": "sasl_ssl",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": PASSWORD,
                "ssl.ca.location": str(certificates / "ca.pem"),
                "ssl.certificate.location": str(certificates / "cert.pem"),
                "ssl.key.location": str(certificates / "key.pem"),
            },
        }
    )
    with EmbeddedBroker(tmp_path_factory.mktemp("secured"), plain, extra_config=extra):
        yield settings


def test_librdkafka_gets_in(secured: Settings) -> None:
    assert TopicAdmin(librdkafka_config(secured)).describe(["none"]) == {}


def test_a_wrong_password_is_told_without_showing_it(secured: Settings) -> None:
    config = {**librdkafka_config(secured), "sasl.password": "hidden"}

    with pytest.raises(TopicsError) as caught:
        TopicAdmin(config, timeout=3).describe(["none"])
    assert "hidden" not in str(caught.value)
    assert PASSWORD not in repr(secured)


def test_java_gets_in_with_the_same_settings(secured: Settings, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "".join(
            f"{name}={value}\n"
            for name, value in (
                (name, value.replace("\\", "\\\\").replace("\n", "\\n"))
                for name, value in java_config(secured).items()
            )
        )
    )
    class_path = os.pathsep.join(map(str, jar_paths("broker")))
    done = subprocess.run(
        [
            *(str(find_java()), "-cp", class_path, "kafka.admin.ConfigCommand"),
            *("--bootstrap-server", secured.bootstrap_servers),
            *("--command-config", str(properties)),
            *("--describe", "--entity-type", "brokers"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "configs for broker 1" in done.stdout
