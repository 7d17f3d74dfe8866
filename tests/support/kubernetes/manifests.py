"""Finding objects among those that a chart renders."""

from collections.abc import Sequence
from typing import Any

Manifest = dict[str, Any]


def kinds(objects: Sequence[Manifest]) -> list[str]:
    """`Kind/name` of each, sorted."""
    return sorted(f"{each['kind']}/{each['metadata']['name']}" for each in objects)


def all_of(objects: Sequence[Manifest], kind: str) -> list[Manifest]:
    return [each for each in objects if each["kind"] == kind]


def the(objects: Sequence[Manifest], kind: str, name: str = "") -> Manifest:
    """The only one of its kind (and name)."""
    found = [each for each in all_of(objects, kind) if not name or each["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name} in {kinds(objects)}"
    return found[0]


def container_of(deployment: Manifest) -> Manifest:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def variables_of(deployment: Manifest) -> dict[str, str]:
    """Names and values; a field path where the value comes from a field."""
    return {
        entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"]
        if "valueFrom" in entry
        else entry.get("value", "")  # the API server leaves out what is empty
        for entry in container_of(deployment)["env"]
    }
