"""The Schedulers as last seen, by the watch or in the answer to a write of ours."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from punctual_operator.api.conditions import READY
from punctual_operator.api.names import SchedulerKey, key_of


class KnownSchedulers:
    """Keeps the newest of each: the watch may tell of a change later than the answer to it did."""

    def __init__(self) -> None:
        self._bodies: dict[SchedulerKey, dict[str, Any]] = {}

    def get(self, key: SchedulerKey) -> dict[str, Any] | None:
        """As last seen; None if it is gone."""
        return self._bodies.get(key)

    def put(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take note, and return the newest."""
        key = key_of(body)
        kept = self._bodies.get(key)
        if kept is None or not _is_newer(kept, body):
            kept = self._bodies[key] = dict(body)
        return kept

    def remove(self, body: Mapping[str, Any]) -> None:
        """It is gone; one by the same name that was made since is not."""
        kept = self._bodies.get(key_of(body))
        if kept is not None and kept["metadata"]["uid"] == body["metadata"]["uid"]:
            del self._bodies[key_of(body)]

    def drop(self, key: SchedulerKey) -> None:
        """There is none by this name."""
        self._bodies.pop(key, None)

    def all(self) -> Iterator[dict[str, Any]]:
        """Every one."""
        return iter(list(self._bodies.values()))

    def counter(self, truth: str) -> Callable[[], float]:
        """Tells how many have this status of Ready."""
        return lambda: float(sum(_ready(body) == truth for body in self._bodies.values()))


def needs_look(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Whether a change concerns us: not what we wrote into the status ourselves."""
    if old is None:
        return True
    return _concern(old) != _concern(new)


def _concern(body: Mapping[str, Any]) -> tuple[Any, ...]:
    metadata = body["metadata"]
    names = ("uid", "generation", "deletionTimestamp", "finalizers", "annotations")
    return tuple(metadata.get(name) for name in names)


def _is_newer(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """By resource version, which counts up for one object; another uid is another object."""
    if one["metadata"]["uid"] != other["metadata"]["uid"]:
        return False
    return int(one["metadata"]["resourceVersion"]) > int(other["metadata"]["resourceVersion"])


def _ready(body: Mapping[str, Any]) -> str:
    for condition in body.get("status", {}).get("conditions", ()):
        if condition["type"] == READY:
            return str(condition["status"])
    return "Unknown"
