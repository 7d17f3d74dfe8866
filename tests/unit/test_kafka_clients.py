"""One set of Kafka properties serves librdkafka and Java."""

from pathlib import Path

import pytest
from punctual_worker.kafka_clients import KafkaConfigError, java_config, librdkafka_config
from punctual_worker.settings import Settings


def settings(**kafka: str) -> Settings:
    return Settings.model_validate(
        {
            "bootstrap_servers": "a:1,b:2",
            "kafka": {name.replace("_", "."): value for name, value in kafka.items()},
        }
    )


def test_librdkafka_gets_the_properties_as_they_are_and_our_own_on_top() -> None:
    config = librdkafka_config(settings(sasl_password="p"), group_id="g", linger_ms=0)

    assert config == {
        "bootstrap.servers": "a:1,b:2",
        "sasl.password": "p",
        "group.id": "g",
        "linger.ms": 0,
    }


def test_without_properties_java_gets_the_servers_only() -> None:
    assert java_config(settings()) == {"bootstrap.servers": "a:1,b:2"}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
def test_user_and_password_become_a_login_module(mechanism: str, module: str) -> None:
    config = java_config(
        settings(
            security_protocol="sasl_ssl",
            sasl_mechanisms=mechanism,
            sasl_username="ann",
            sasl_password='a"b\\c',
        )
    )

    assert config == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="ann" password="a\\"b\\\\c";',
    }


def test_certificates_become_pem_stores(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"-- {name} --")

    config = java_config(
        settings(
            security_protocol="SSL",
            ssl_ca_location=str(tmp_path / "ca"),
            ssl_certificate_location=str(tmp_path / "certificate"),
            ssl_key_location=str(tmp_path / "key"),
            ssl_key_password="secret",
            ssl_endpoint_identification_algorithm="none",
        )
    )

    assert config == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "-- ca --",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "-- certificate --",
        "ssl.keystore.key": "-- key --",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("kafka", "sentence"),
    [
        ({"queue_buffering_max_ms": "5"}, r"queue\.buffering\.max\.ms: has no equivalent"),
        ({"sasl_username": "ann"}, r"sasl\.password is missing"),
        ({"sasl_password": "hidden"}, r"sasl\.username is missing"),
        (
            {"sasl_username": "a", "sasl_password": "hidden", "sasl_mechanisms": "OAUTHBEARER"},
            r"sasl\.mechanisms=OAUTHBEARER: .* one of PLAIN, SCRAM",
        ),
        ({"sasl_mechanism": "PLAIN"}, r"needs sasl\.username and sasl\.password"),
        ({"ssl_ca_location": "/nowhere/ca.pem"}, r"ssl\.ca\.location: /nowhere/ca\.pem cannot be"),
        ({"ssl_certificate_pem": "x"}, r"ssl\.key\.location is missing"),
    ],
)
def test_what_java_cannot_use_is_named_and_never_shown(
    kafka: dict[str, str], sentence: str
) -> None:
    with pytest.raises(KafkaConfigError, match=sentence) as caught:
        java_config(settings(**kafka))

    assert "hidden" not in str(caught.value)
