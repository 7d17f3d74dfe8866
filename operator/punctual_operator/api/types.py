"""A Scheduler's spec. The schema in `crds/scheduler.yaml` has the bounds and the words.

Defaults are here again because an object can be older than the default in the schema; a unit test
holds the two together. Unknown fields are ignored: the CRD may be newer than this operator.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from punctual_operator.errors import InvalidSpecError

Switch = Literal["Enabled", "Disabled"]
CleanupPolicy = Literal["Compact", "Delete"]
Quantities = dict[str, str | int]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class CaSecretRef(_Model):
    """Where the certificate authority is."""

    name: str
    key: str = "ca.crt"


class ClientCertificateSecretRef(_Model):
    """Where the client's certificate and key are."""

    name: str
    certificate_key: str = "tls.crt"
    private_key_key: str = "tls.key"


class Tls(_Model):
    """Encryption of the connection to Kafka."""

    ca_secret_ref: CaSecretRef | None = None
    client_certificate_secret_ref: ClientCertificateSecretRef | None = None
    hostname_verification: Switch = "Enabled"


class CredentialsSecretRef(_Model):
    """Where user name and password are."""

    name: str
    username_key: str = "username"
    password_key: str = "password"  # noqa: S105 the name of an entry


class Sasl(_Model):
    """Login to Kafka."""

    mechanism: Literal["Plain", "ScramSha256", "ScramSha512"]
    credentials_secret_ref: CredentialsSecretRef


class Kafka(_Model):
    """How to connect to Kafka."""

    bootstrap_servers: tuple[str, ...]
    tls: Tls | None = None
    sasl: Sasl | None = None
    properties: dict[str, str] = {}


class RequestsTopic(_Model):
    """Where users write."""

    partitions: int = 8
    cleanup_policy: CleanupPolicy = "Compact"
    config: dict[str, str] = {}


class ActionsTopic(_Model):
    """The log of what is pending."""

    partitions: int = 8
    config: dict[str, str] = {}


class RejectionsTopic(_Model):
    """What was wrong."""

    cleanup_policy: CleanupPolicy = "Compact"
    config: dict[str, str] = {}


class HistoryTopic(_Model):
    """What became of each request."""

    retention_days: int = 30
    config: dict[str, str] = {}


class Topics(_Model):
    """How the topics are made and kept."""

    replication_factor: int | None = None
    request_max_bytes: int = 1_048_588
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    requests: RequestsTopic = RequestsTopic()
    actions: ActionsTopic = ActionsTopic()
    rejections: RejectionsTopic = RejectionsTopic()
    history: HistoryTopic = HistoryTopic()


class Resources(_Model):
    """CPU and memory of a container."""

    requests: Quantities = {}
    limits: Quantities = {}


class Executors(_Model):
    """Spark executor pods."""

    instances: int
    cores: int
    memory_mebibytes: int = 1024
    image: str | None = None


class Source(_Model):
    """A topic with requests in another system's format."""

    topic: str
    dialect: Literal["Native", "KafkaMessageScheduler", "KmsJson", "KmsAvro", "Karafka"]


class Intake(_Model):
    """Takes requests in."""

    mode: Literal["RealTime", "MicroBatch"] = "RealTime"
    batch_seconds: int = 300
    sources: tuple[Source, ...] = ()
    resources: Resources = Resources()
    spark_properties: dict[str, str] = {}
    executors: Executors | None = None


class Storage(_Model):
    """Local copy of what is pending."""

    size: str = "2Gi"
    storage_class_name: str | None = None


class Dispatchers(_Model):
    """Deliver what is due."""

    replicas: int = 2
    guarantee: Literal["ExactlyOnce", "AtLeastOnce"] = "ExactlyOnce"
    delivery_attempts: int = 6
    retry_backoff_milliseconds: int = 1000
    on_lost_checkpoint: Literal["Refuse", "Deliver"] = "Refuse"
    resources: Resources = Resources()
    storage: Storage = Storage()


class TokenSecretRef(_Model):
    """Where the console's token is."""

    name: str
    key: str = "token"


class Console(_Model):
    """Web page and REST API."""

    state: Switch = "Enabled"
    access: Literal["ReadOnly", "ReadWrite"] = "ReadOnly"
    payloads: Literal["Shown", "Hidden"] = "Shown"
    token_secret_ref: TokenSecretRef | None = None
    user_header: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    resources: Resources = Resources()


class Logging(_Model):
    """Logging of every part."""

    format: Literal["Json", "Text"] = "Json"
    level: Literal["Debug", "Info", "Warning", "Error"] = "Info"


class PodTemplate(_Model):
    """What all pods have in common; nested parts are Kubernetes' own and passed on as they are."""

    image: str | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: tuple[dict[str, Any], ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: dict[str, Any] = {}
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    priority_class_name: str | None = None
    service_account_name: str | None = None
    termination_grace_period_seconds: int = 60
    pod_security_context: dict[str, Any] = {}
    security_context: dict[str, Any] = {}
    extra_env: tuple[dict[str, Any], ...] = ()
    extra_volumes: tuple[dict[str, Any], ...] = ()
    extra_volume_mounts: tuple[dict[str, Any], ...] = ()


class SchedulerSpec(_Model):
    """What is wanted."""

    app_id: str | None = None
    kafka: Kafka
    topics: Topics = Topics()
    intake: Intake = Intake()
    dispatchers: Dispatchers = Dispatchers()
    console: Console = Console()
    destinations: tuple[str, ...] = ()
    horizon_days: int = 36_525
    history: Switch = "Disabled"
    trace_headers: Switch = "Enabled"
    network_policy: Switch = "Disabled"
    logging: Logging = Logging()
    pod_template: PodTemplate = PodTemplate()


class Scheduler(_Model):
    """One Scheduler, as far as plans need it."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: SchedulerSpec

    @property
    def app_id(self) -> str:
        """Names topics and groups."""
        return self.spec.app_id or self.name


def parse_scheduler(body: Mapping[str, Any]) -> Scheduler:
    """From what the API server gives; `InvalidSpecError` names the fields that are wrong."""
    metadata = body["metadata"]
    try:
        spec = SchedulerSpec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        faults = "; ".join(
            f"spec.{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors()
        )
        raise InvalidSpecError(f"The spec cannot be used: {faults}.") from None
    return Scheduler(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        spec=spec,
    )
