"""Why a pod does not serve, in words that stay the same while the reason does."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

_TEXT_LIMIT: Final = 300
_SELF_EXPLAINING: Final = frozenset({"ContainerCreating", "PodInitializing"})
_TIMED: Final = frozenset({"CrashLoopBackOff", "ImagePullBackOff"})
"""Their message tells how long the pause is, which changes all the time."""


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether it serves."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def describe_troubles(pods: Iterable[Mapping[str, Any]], told: Mapping[str, str]) -> list[str]:
    """A phrase for each pod that does not serve; `told` is what their `/readyz` said."""
    troubles = []
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        if is_ready(pod) or "deletionTimestamp" in pod["metadata"]:
            continue
        name = pod["metadata"]["name"]
        if words := _trouble(pod) or told.get(name):
            troubles.append(f"pod {name}: {words[:_TEXT_LIMIT]}")
    return troubles


def _trouble(pod: Mapping[str, Any]) -> str | None:
    status = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"cannot be scheduled: {condition.get('message', condition.get('reason'))}"
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting")
        if waiting is None or waiting["reason"] in _SELF_EXPLAINING:
            continue
        ended = container.get("lastState", {}).get("terminated", {})
        message = "" if waiting["reason"] in _TIMED else waiting.get("message", "")
        words = _last_line(ended.get("message", "")) or message
        return f"{waiting['reason']}{f': {words}' if words else ''}"
    return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
