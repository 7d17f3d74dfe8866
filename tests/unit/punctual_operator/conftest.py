"""Schedulers without a cluster."""

from collections.abc import Callable
from typing import Any

import pytest
from punctual_operator.api.types import Scheduler, parse_scheduler


@pytest.fixture
def make_body() -> Callable[..., dict[str, Any]]:
    """A Scheduler as the API server gives it; `spec` beside the connection."""

    def make(name: str = "demo", *, uid: str = "uid-1", **spec: Any) -> dict[str, Any]:
        kafka = {"bootstrapServers": ["kafka:9092"], **spec.pop("kafka", {})}
        return {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": uid,
                "generation": 3,
                "resourceVersion": "10",
                "creationTimestamp": "2026-11-18T12:00:00Z",
            },
            "spec": {"kafka": kafka, **spec},
        }

    return make


@pytest.fixture
def make_scheduler(make_body: Callable[..., dict[str, Any]]) -> Callable[..., Scheduler]:
    """The same, parsed."""
    return lambda *args, **spec: parse_scheduler(make_body(*args, **spec))
