"""Which entries of which Secrets a Scheduler needs, and as which settings the workers get them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from punctual_worker.settings import KAFKA_ENV_PREFIX

from punctual_operator.api.types import Kafka, SchedulerSpec

CONSOLE_TOKEN: Final = "PUNCTUAL_CONSOLE_TOKEN"  # noqa: S105 the name of a variable
MECHANISMS: Final = {
    "Plain": "PLAIN",
    "ScramSha256": "SCRAM-SHA-256",
    "ScramSha512": "SCRAM-SHA-512",
}


@dataclass(frozen=True)
class SecretEntry:
    """One entry of a Secret, and the Kafka client property that it is the value of."""

    secret: str
    key: str
    kafka_property: str

    @property
    def variable(self) -> str:
        """The variable by which a worker gets it."""
        return KAFKA_ENV_PREFIX + self.kafka_property.upper().replace(".", "_")


def kafka_secrets(kafka: Kafka) -> list[SecretEntry]:
    """All that the connection needs. PEM texts are values too: Java and librdkafka take both."""
    return list(_tls_entries(kafka)) + list(_sasl_entries(kafka))


def _tls_entries(kafka: Kafka) -> Iterator[SecretEntry]:
    if kafka.tls is None:
        return
    if authority := kafka.tls.ca_secret_ref:
        yield SecretEntry(authority.name, authority.key, "ssl.ca.pem")
    if own := kafka.tls.client_certificate_secret_ref:
        yield SecretEntry(own.name, own.certificate_key, "ssl.certificate.pem")
        yield SecretEntry(own.name, own.private_key_key, "ssl.key.pem")


def _sasl_entries(kafka: Kafka) -> Iterator[SecretEntry]:
    if kafka.sasl is not None:
        login = kafka.sasl.credentials_secret_ref
        yield SecretEntry(login.name, login.username_key, "sasl.username")
        yield SecretEntry(login.name, login.password_key, "sasl.password")


def secret_names(spec: SchedulerSpec) -> set[str]:
    """Every Secret that the spec names and the operator therefore reads."""
    names = {entry.secret for entry in kafka_secrets(spec.kafka)}
    if spec.console.state == "Enabled" and (token := spec.console.token_secret_ref):
        names.add(token.name)
    return names


def secret_variable(name: str, *, secret: str, key: str) -> dict[str, Any]:
    """A variable whose value stays in its Secret."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def open_properties(kafka: Kafka) -> dict[str, str]:
    """The connection's properties that anybody may read."""
    properties = dict(kafka.properties)
    protocol = ("SASL_" if kafka.sasl else "") + ("SSL" if kafka.tls else "PLAINTEXT")
    if protocol != "PLAINTEXT":
        properties["security.protocol"] = protocol
    if kafka.sasl is not None:
        properties["sasl.mechanisms"] = MECHANISMS[kafka.sasl.mechanism]
    if kafka.tls is not None and kafka.tls.hostname_verification == "Disabled":
        properties["ssl.endpoint.identification.algorithm"] = "none"
    return properties


def secret_properties(kafka: Kafka, data: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The connection's properties that nobody may read; `data` by Secret and entry."""
    return {entry.kafka_property: data[entry.secret][entry.key] for entry in kafka_secrets(kafka)}
