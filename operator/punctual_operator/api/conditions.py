"""Conditions: what is so, since when, and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Truth = Literal["True", "False", "Unknown"]

READY: Final = "Ready"
"""Requests are taken in and messages delivered, by the spec as it is."""
TOPICS_READY: Final = "TopicsReady"
INTAKE_READY: Final = "IntakeReady"
DISPATCHERS_READY: Final = "DispatchersReady"
CONSOLE_READY: Final = "ConsoleReady"
DEGRADED: Final = "Degraded"
"""It serves, but something needs a person; the message says what to do."""
PAUSED: Final = "Paused"
"""Nothing is changed, by the user's wish; not there otherwise."""
MESSAGE_LIMIT: Final = 2_000


@dataclass(frozen=True)
class Condition:
    """One condition, as decided now."""

    type: str
    status: Truth
    reason: str
    message: str


@dataclass(frozen=True)
class Transition:
    """A condition whose status or reason is another than before."""

    condition: Condition
    was: Truth | None


def merge_conditions(
    old: Sequence[Mapping[str, Any]], new: Iterable[Condition], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """The list to write: `lastTransitionTime` moves only with the status."""
    before = {condition["type"]: condition for condition in old}
    merged = []
    for condition in new:
        previous = before.get(condition.type)
        unchanged = previous is not None and previous["status"] == condition.status
        since = previous["lastTransitionTime"] if unchanged and previous is not None else now
        merged.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message[:MESSAGE_LIMIT],
                "observedGeneration": generation,
                "lastTransitionTime": since,
            }
        )
    return merged


def find_transitions(
    old: Sequence[Mapping[str, Any]], new: Iterable[Condition]
) -> list[Transition]:
    """What is worth an event."""
    before = {condition["type"]: condition for condition in old}
    changed = []
    for condition in new:
        previous = before.get(condition.type)
        was = None if previous is None else previous["status"]
        reason = None if previous is None else previous["reason"]
        if (was, reason) != (condition.status, condition.reason):
            changed.append(Transition(condition, was))
    return changed
