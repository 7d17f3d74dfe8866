"""Schedulers as tests apply them."""

from collections.abc import Mapping
from typing import Any

KIND = "schedulers.punctual.dev"


def scheduler(name: str, servers: str, **spec: Any) -> dict[str, Any]:
    """A small one: two partitions, one dispatcher, no console; `spec` wins, field by field."""
    small: dict[str, Any] = {
        "kafka": {"bootstrapServers": [servers]},
        "topics": {"requests": {"partitions": 2}, "actions": {"partitions": 2}},
        "dispatchers": {"replicas": 1},
        "console": {"state": "Disabled"},
    }
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "Scheduler",
        "metadata": {"name": name},
        "spec": merged(small, spec),
    }


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, objects merged and everything else replaced."""
    result = dict(base)
    for name, value in over.items():
        below = result.get(name)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[name] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result
