"""From `Settings` to the configuration of Kafka clients, librdkafka's and Java's.

Users write client properties once, by librdkafka's names; Spark needs the same in Java's. This is
the only place where secrets are revealed: what comes out of here is never logged.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings


class KafkaConfigError(PunctualError):
    """A Kafka client property cannot be used; the message names it, never its value."""


_SAME_IN_JAVA: Final = frozenset(
    {
        "security.protocol",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "sasl.kerberos.service.name",
        "client.id",
        "client.rack",
        "client.dns.lookup",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "request.timeout.ms",
        "metadata.max.age.ms",
        "connections.max.idle.ms",
    }
)
_RENAMED: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}
_TRANSLATED: Final = frozenset(
    {
        "bootstrap.servers",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
    }
)
_ONLY_LIBRDKAFKA: Final = frozenset({"log_level", "debug", "statistics.interval.ms", "log.queue"})
"""How librdkafka logs: means nothing to Java and does no harm to leave out."""
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def librdkafka_config(settings: Settings, **own: Any) -> dict[str, Any]:
    """Configuration for confluent-kafka; `own` properties (dots as underscores) win."""
    config: dict[str, Any] = {"bootstrap.servers": settings.bootstrap_servers}
    config.update(revealed_properties(settings))
    config.update({name.replace("_", "."): value for name, value in own.items()})
    return config


def java_config(
    settings: Settings, *, read_text: Callable[[Path], str] = Path.read_text
) -> dict[str, str]:
    """The same connection for a Java client; Spark wants each name prefixed with `kafka.`."""
    given = revealed_properties(settings)
    known = _SAME_IN_JAVA | _RENAMED.keys() | _TRANSLATED | _ONLY_LIBRDKAFKA
    if strangers := sorted(given.keys() - known):
        raise KafkaConfigError(
            f"Kafka property {', '.join(strangers)}: has no equivalent in a Java client, which "
            "intake (Spark) needs; take it out, or use security.protocol, sasl.mechanisms, "
            "sasl.username, sasl.password, ssl.ca.location, ssl.certificate.location, "
            "ssl.key.location and ssl.key.password."
        )
    config = {"bootstrap.servers": given.get("bootstrap.servers", settings.bootstrap_servers)}
    for name in _SAME_IN_JAVA & given.keys():
        config[name] = given[name]
    for name in _RENAMED.keys() & given.keys():
        config[_RENAMED[name]] = given[name]
    if "security.protocol" in config:  # librdkafka takes it in lower case, Java does not
        config["security.protocol"] = config["security.protocol"].upper()
    if config.get("ssl.endpoint.identification.algorithm") == "none":
        config["ssl.endpoint.identification.algorithm"] = ""
    config.update(_sasl(given, config.get("sasl.mechanism")))
    config.update(_trust(given, read_text))
    config.update(_identity(given, read_text))
    return config


def revealed_properties(settings: Settings) -> dict[str, str]:
    """The user's properties with their secrets: for clients and our own children only."""
    return {name: secret.get_secret_value() for name, secret in settings.kafka.items()}


def _sasl(given: Mapping[str, str], mechanism: str | None) -> dict[str, str]:
    user, password = given.get("sasl.username"), given.get("sasl.password")
    if user is None and password is None:
        if mechanism in _LOGIN_MODULES:
            raise KafkaConfigError(
                f"Kafka property sasl.mechanisms={mechanism} needs sasl.username and sasl.password."
            )
        return {}
    if user is None or password is None:
        missing = "sasl.username" if user is None else "sasl.password"
        raise KafkaConfigError(f"Kafka property {missing} is missing: want both name and password.")
    module = _LOGIN_MODULES.get(mechanism or "")
    if module is None:
        raise KafkaConfigError(
            f"Kafka property sasl.mechanisms={mechanism or 'not given'}: with a user name and "
            f"password one of {', '.join(_LOGIN_MODULES)} is wanted."
        )
    return {
        "sasl.jaas.config": (
            f"{module} required username={_jaas_quoted(user)} password={_jaas_quoted(password)};"
        )
    }


def _jaas_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _trust(given: Mapping[str, str], read_text: Callable[[Path], str]) -> dict[str, str]:
    certificates = _pem(given, "ssl.ca", read_text)
    if certificates is None:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates}


def _identity(given: Mapping[str, str], read_text: Callable[[Path], str]) -> dict[str, str]:
    chain = _pem(given, "ssl.certificate", read_text)
    key = _pem(given, "ssl.key", read_text)
    if chain is None and key is None:
        return {}
    if chain is None or key is None:
        missing = "ssl.certificate.location" if chain is None else "ssl.key.location"
        raise KafkaConfigError(
            f"Kafka property {missing} is missing: a client certificate and its key go together."
        )
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key,
    }


def _pem(given: Mapping[str, str], prefix: str, read_text: Callable[[Path], str]) -> str | None:
    """The PEM text of `<prefix>.pem`, or of the file that `<prefix>.location` names."""
    if inline := given.get(f"{prefix}.pem"):
        return inline
    location = given.get(f"{prefix}.location")
    if location is None:
        return None
    try:
        return read_text(Path(location))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a PEM text file"
        raise KafkaConfigError(
            f"Kafka property {prefix}.location: {location} cannot be read: {reason}."
        ) from error
