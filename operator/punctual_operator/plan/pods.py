"""Why a pod does not serve, in words that stay the same while the reason does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

_TEXT_LIMIT: Final = 300
_PATIENCE_SECONDS: Final = 120.0
"""A worker that has not been ready for this long is not just starting."""
_SELF_EXPLAINING: Final = frozenset({"ContainerCreating", "PodInitializing"})
_TIMED: Final = frozenset({"CrashLoopBackOff", "ImagePullBackOff"})
"""Their message tells how long the pause is, which changes all the time."""


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether it serves."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@dataclass(frozen=True)
class Unready:
    """Why pods of a part do not serve."""

    troubles: tuple[str, ...] = ()
    """What needs a person."""
    hints: tuple[str, ...] = ()
    """What goes on; nobody need care yet."""


def describe_unready(
    pods: Iterable[Mapping[str, Any]], told: Mapping[str, str], *, now: float
) -> Unready:
    """A phrase for each pod that does not serve; `told` is what their `/readyz` said."""
    troubles: list[str] = []
    hints: list[str] = []
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        if is_ready(pod) or "deletionTimestamp" in pod["metadata"]:
            continue
        name = pod["metadata"]["name"]
        if words := _trouble(pod):
            troubles.append(f"pod {name}: {words[:_TEXT_LIMIT]}")
        elif words := told.get(name):
            is_late = now - _unready_since(pod, default=now) > _PATIENCE_SECONDS
            (troubles if is_late else hints).append(f"pod {name}: {words[:_TEXT_LIMIT]}")
    return Unready(tuple(troubles), tuple(hints))


def _unready_since(pod: Mapping[str, Any], *, default: float) -> float:
    since = [
        datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
        for condition in pod.get("status", {}).get("conditions", ())
        if condition["type"] == "Ready" and condition.get("lastTransitionTime")
    ]
    return since[0] if since else default


def _trouble(pod: Mapping[str, Any]) -> str | None:
    status = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"cannot be scheduled: {condition.get('message', condition.get('reason'))}"
    for container in status.get("containerStatuses", ()):
        state = container.get("state", {})
        waiting, over = state.get("waiting"), state.get("terminated")
        if over and over.get("exitCode") and pod.get("spec", {}).get("restartPolicy") == "Never":
            words = _last_line(over.get("message", "")) or f"exit status {over['exitCode']}"
            return f"{over.get('reason', 'Error')}: {words}"
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
