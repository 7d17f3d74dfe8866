"""Settings of every part: flags, else `PUNCTUAL_*` variables, else a YAML file; one model.

No part reads the environment itself; `cli.py` loads a `Settings` and hands it on.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from punctual_worker.contract.dialects import Dialect
from punctual_worker.contract.topics import (
    MAX_REQUEST_PARTITIONS,
    REQUEST_MAX_BYTES,
    CleanupPolicy,
    TopicNames,
    is_legal_topic,
)

ENV_PREFIX = "PUNCTUAL_"
KAFKA_ENV_PREFIX = "PUNCTUAL_KAFKA_"
"""`PUNCTUAL_KAFKA_SASL_USERNAME` sets the client property `sasl.username`."""


class SettingsError(Exception):
    """A setting is wrong; the message names it, what was given and what is wanted."""


def _split(value: Any) -> Any:
    """Lists may be given as comma-separated text, as flags and variables do."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _pairs(value: Any) -> Any:
    """Mappings may be given as `name=value` texts, as flags and variables do."""
    if isinstance(value, str | list | tuple):
        pairs = [str(pair).partition("=") for pair in _split(value)]
        if wrong := [name for name, equals, _ in pairs if not equals]:
            raise ValueError(f"{wrong[0]!r} is given, want TOPIC=DIALECT")
        return {name: text for name, _, text in pairs}
    return value


CommaSeparated = Annotated[tuple[str, ...], BeforeValidator(_split)]


class Settings(BaseModel):
    """All settings; each part takes what concerns it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str = Field("localhost:9092", min_length=1)
    """Kafka brokers, `host:port,host:port`."""
    app_id: str = "punctual"
    """Names the topics (`<app-id>-schedule-requests`, …) and the consumer groups."""
    kafka: dict[str, SecretStr] = {}
    """Further Kafka client properties by librdkafka's names (TLS, SASL, …), used by every part."""
    data_dir: Path = Path(".punctual")
    """Local caches, and the embedded broker's data. Only the broker's part of it is precious."""
    http_host: str = "127.0.0.1"
    http_port: int = Field(8080, ge=0, le=65535)
    """Where a part serves its metrics and health; 0 takes a free port."""
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    request_partitions: int = Field(8, ge=1, le=MAX_REQUEST_PARTITIONS)
    action_partitions: int = Field(8, ge=1, le=1000)
    replication_factor: int = Field(1, ge=1, le=32767)
    request_max_bytes: int = Field(REQUEST_MAX_BYTES, ge=1024, le=100_000_000)
    requests_cleanup_policy: CleanupPolicy = "compact"
    rejections_cleanup_policy: CleanupPolicy = "compact"
    history: bool = False
    """Whether every event is also written to `<app-id>-schedule-history`."""

    intake_mode: Literal["real-time", "micro-batch"] = "real-time"
    intake_batch_seconds: int = Field(300, ge=1, le=3600)
    """Length of a real-time batch. Each batch end costs a pause of about 0.4 s, so: long."""
    intake_master: str = ""
    """Spark master; empty means this process with a slot for each request partition, `k8s` executor
    pods in the cluster that this pod is in."""
    destinations: CommaSeparated = ()
    """Topics that may be delivered to, `*` as wildcard; empty means any but our own."""
    sources: Annotated[dict[str, Dialect], BeforeValidator(_pairs)] = {}
    """Further topics to take requests from, and the dialect of each."""
    horizon_days: int = Field(36_525, ge=1, le=365_000)
    """How far ahead a delivery may be asked for: catches wrong units."""
    spark: dict[str, str] = {}
    """Further Spark settings."""

    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    trace_headers: bool = True
    session_timeout_ms: int = Field(6_000, ge=6_000, le=1_800_000)
    transaction_timeout_ms: int = Field(10_000, ge=1_000, le=900_000)
    turn_max_records: int = Field(10_000, ge=1, le=100_000)
    """Most actions read in one transaction; up to five times as many messages are delivered in
    one."""
    delivery_attempts: int = Field(6, ge=1, le=1_000)
    """How often an undeliverable message is tried before it is rejected."""
    retry_backoff_ms: int = Field(1_000, ge=10, le=3_600_000)
    """Pause after the first failure; doubled by each further one, up to a minute."""
    on_lost_checkpoint: Literal["refuse", "deliver"] = "refuse"
    """What to do with a log whose checkpoint is gone: serve it not at all, or deliver what it
    still holds, some of it perhaps for the second time."""

    console_url: str = "http://127.0.0.1:8080"
    """Where `punctual list` and `show` find the console."""
    console_token: SecretStr | None = None
    """Bearer token that the console asks for; from a variable or file, never a flag."""
    console_token_file: Path | None = None
    """File that holds the token."""
    console_user_header: str = ""
    """Header in which a trusted proxy names the user it has authenticated."""
    console_trusted_proxies: CommaSeparated = ("127.0.0.1/32", "::1/128")
    """Networks from which that header is believed."""
    console_hosts: CommaSeparated = ()
    """Further names of the console: those that a browser may use on loopback or behind a proxy."""
    console_read_only: bool = False
    console_hide_payloads: bool = False
    console_payload_max_bytes: int = Field(65_536, ge=0, le=10_000_000)
    """Longest payload that is shown whole."""
    console_writes_per_second: int = Field(20, ge=1, le=10_000)
    """Requests that one user may send through the console."""
    console_parts: CommaSeparated = ()
    """`name=url` of parts whose health and metrics the overview shows."""
    console_rejections_kept: int = Field(100_000, ge=1_000, le=10_000_000)
    console_history_kept: int = Field(1_000_000, ge=1_000, le=100_000_000)
    """How many of the latest records the view keeps; the log may have more."""

    @field_validator("app_id")
    @classmethod
    def _app_id_makes_legal_topics(cls, value: str) -> str:
        if not all(is_legal_topic(topic) for topic in TopicNames(value).all):
            raise ValueError("use letters, digits, '.', '_' and '-', at most 226 of them")
        return value

    @field_validator("sources")
    @classmethod
    def _sources_are_topics(cls, value: dict[str, Dialect]) -> dict[str, Dialect]:
        if wrong := [topic for topic in value if not is_legal_topic(topic)]:
            raise ValueError(f"{wrong[0]!r} is not a topic's name")
        return value

    @model_validator(mode="after")
    def _sources_are_not_our_own(self) -> Self:
        if own := [topic for topic in self.sources if topic in self.topics.all]:
            raise ValueError(f"sources: {own[0]} is a topic of this app id itself")
        return self

    @property
    def topics(self) -> TopicNames:
        """Names of this app's topics."""
        return TopicNames(self.app_id)


def load_settings(
    *, flags: Mapping[str, Any], environment: Mapping[str, str], config_file: Path | None
) -> Settings:
    """Merge the three sources; `SettingsError` names the setting that is wrong."""
    merged = _from_file(config_file) if config_file else {}
    kafka = {str(name): str(value) for name, value in dict(merged.get("kafka") or {}).items()}
    for name, text in environment.items():
        if name.startswith(KAFKA_ENV_PREFIX):
            kafka[name.removeprefix(KAFKA_ENV_PREFIX).lower().replace("_", ".")] = text
        elif name.startswith(ENV_PREFIX):
            field = name.removeprefix(ENV_PREFIX).lower()
            if field in Settings.model_fields:
                merged[field] = text
    for name, value in flags.items():
        if value is None:
            continue
        if name == "kafka":
            kafka.update(value)
        else:
            merged[name] = value
    try:
        return Settings.model_validate({**merged, "kafka": kafka})
    except ValidationError as error:
        raise SettingsError(_describe(error)) from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: want a mapping of settings, got {type(content).__name__}")
    return {str(name).replace("-", "_"): value for name, value in content.items()}


def _describe(error: ValidationError) -> str:
    lines = []
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"]).replace("_", "-")
        given = "" if name.startswith("kafka") else f" (given: {fault['input']!r})"
        lines.append(f"{name}: {fault['msg']}{given}")
    return "; ".join(lines)
