"""Two Schedulers with one app id on one Kafka cluster would be one: the older has it."""

from collections.abc import Iterable, Mapping
from typing import Any

from punctual_operator.api.names import SchedulerKey, key_of


def find_owner(
    body: Mapping[str, Any], others: Iterable[Mapping[str, Any]], *, cluster_id: str | None
) -> SchedulerKey | None:
    """The older Scheduler that has this one's app id; None if there is none."""
    older = [
        other
        for other in others
        if other["metadata"]["uid"] != body["metadata"]["uid"]
        and _age(other) < _age(body)
        and _app_id(other) == _app_id(body)
        and _same_cluster(body, other, cluster_id)
    ]
    return key_of(min(older, key=_age)) if older else None


def same_app_id(body: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[SchedulerKey]:
    """Who may have waited for this one to go."""
    return [key_of(other) for other in others if _app_id(other) == _app_id(body)]


def _age(body: Mapping[str, Any]) -> tuple[str, bool, str]:
    """Times are in whole seconds: among equals who serves already has it, else the uid decides."""
    serves = "kafkaClusterId" in body.get("status", {})
    return body["metadata"]["creationTimestamp"], not serves, body["metadata"]["uid"]


def _app_id(body: Mapping[str, Any]) -> str:
    return str(body.get("spec", {}).get("appId") or body["metadata"]["name"])


def _same_cluster(
    body: Mapping[str, Any], other: Mapping[str, Any], cluster_id: str | None
) -> bool:
    """By the cluster's own id; by an address in common where one of them is not known yet."""
    known = other.get("status", {}).get("kafkaClusterId")
    if cluster_id is not None and known is not None:
        return bool(cluster_id == known)
    return bool(_servers(body) & _servers(other))


def _servers(body: Mapping[str, Any]) -> set[str]:
    return set(body.get("spec", {}).get("kafka", {}).get("bootstrapServers", ()))
