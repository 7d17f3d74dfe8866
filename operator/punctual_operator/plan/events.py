"""Events for people: one for each thing that has changed, none for what goes on."""

import uuid
from collections.abc import Mapping
from typing import Any, Final, Literal

from punctual_operator.api.conditions import DEGRADED, READY, Transition
from punctual_operator.api.names import API_VERSION, FIELD_MANAGER, KIND

EventType = Literal["Normal", "Warning"]
_STARTING: Final = ("Starting", "NotCreated", "RollingOut", "ScaledToZero")
_MESSAGE_LIMIT: Final = 1_000


def event_of(transition: Transition) -> tuple[EventType, str, str] | None:
    """Type, reason and message; None where the change is not worth one."""
    condition = transition.condition
    if condition.type == READY:
        if condition.status == "True":
            return "Normal", "Ready", condition.message
        usual = condition.reason.endswith(_STARTING)
        return ("Normal" if usual else "Warning"), condition.reason, condition.message
    if condition.type == DEGRADED:
        if condition.status == "True":
            return "Warning", f"Degraded{condition.reason}", condition.message
        recovered = ("Normal", "Recovered", condition.message)
        return recovered if transition.was == "True" else None  # type: ignore[return-value]
    return "Normal", condition.type, condition.message


def build_event(
    body: Mapping[str, Any], *, kind: str, reason: str, message: str, now: str
) -> dict[str, Any]:
    """An event about a Scheduler."""
    metadata = body["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "type": kind,
        "reason": reason,
        "message": message[:_MESSAGE_LIMIT],
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
