"""The operator's own settings: `PUNCTUAL_OPERATOR_*` variables, one model.

`__main__` reads the environment; everything else is handed a finished `OperatorSettings`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

ENV_PREFIX: Final = "PUNCTUAL_OPERATOR_"


class SettingsError(Exception):
    """A setting is wrong; the message names it, what was given and what is wanted."""


def _split(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


class OperatorSettings(BaseModel):
    """All settings; the unit is in the name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    watch_namespaces: Annotated[tuple[str, ...], BeforeValidator(_split)] = ()
    """Namespaces to look after; none means all of them, which needs cluster-wide rights."""
    worker_image: str = Field("punctual-worker:latest", min_length=1)
    """Image of the workers where a Scheduler names none."""
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    http_host: str = "0.0.0.0"  # noqa: S104 probes and scrapers come from outside of the pod
    http_port: int = Field(8080, ge=0, le=65535)
    """Where metrics and health are served; 0 takes a free port."""
    lease_name: str = "punctual-operator"
    lease_namespace: str = ""
    """Where the Lease is by which one replica is active; empty for the pod's own namespace."""
    lease_seconds: int = Field(15, ge=6, le=600)
    """After this long without a sign of life another replica takes over."""
    identity: str = ""
    """Name of this replica in the Lease; empty for host name and a random part."""
    log_format: Literal["text", "json"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    resync_seconds: float = Field(60, ge=0.2, le=86_400)
    """How often each Scheduler is looked at though nothing was heard of it: repairs drift in
    Kafka, sees changed Secrets and updates the figures in its status."""
    kafka_timeout_seconds: float = Field(10, ge=1, le=120)
    concurrency: int = Field(32, ge=1, le=256)
    """Most Schedulers that are worked on at the same time."""


def load_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """From variables; `SettingsError` names the one that is wrong."""
    given = {
        field: environment[variable]
        for field in OperatorSettings.model_fields
        if (variable := ENV_PREFIX + field.upper()) in environment
    }
    try:
        return OperatorSettings.model_validate(given)
    except ValidationError as error:
        faults = "; ".join(
            f"{ENV_PREFIX}{str(fault['loc'][0]).upper()}: {fault['msg']} "
            f"(given: {fault['input']!r})"
            for fault in error.errors()
        )
        raise SettingsError(faults) from None
