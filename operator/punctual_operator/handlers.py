"""Kopf's decorators: unpack what the watches tell, and put the Scheduler into the queue.

Only raw events are handled, so kopf itself writes nothing: no finalizers, no annotations.
"""

from collections.abc import Mapping
from typing import Any, Final

import kopf

from punctual_operator.api.names import (
    FIELD_MANAGER,
    GROUP,
    KIND,
    PLURAL,
    SCHEDULER_LABEL,
    VERSION,
    SchedulerKey,
    as_selector,
    key_of,
)
from punctual_operator.known import KnownSchedulers, needs_look
from punctual_operator.plan.conflicts import same_app_id
from punctual_operator.workqueue import WorkQueue

_OURS: Final = as_selector({"app.kubernetes.io/managed-by": FIELD_MANAGER})
_CHILDREN: Final = (
    ("", "v1", "configmaps"),
    ("", "v1", "serviceaccounts"),
    ("", "v1", "services"),
    ("apps", "v1", "deployments"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("policy", "v1", "poddisruptionbudgets"),
)


def operator_settings() -> kopf.OperatorSettings:
    """No scanning for namespaces and kinds, which needs rights; no events of kopf's own."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    for group, _, plural in _CHILDREN:
        settings.watching.label_selectors[f"{group}/{plural}" if group else plural] = _OURS
    return settings


def make_registry(queue: WorkQueue, known: KnownSchedulers) -> kopf.OperatorRegistry:
    """What is watched, and who is told."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**details: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_via_client(**details)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def on_scheduler(event: Mapping[str, Any], **_: Any) -> None:
        body: dict[str, Any] = dict(event["object"])
        key = key_of(body)
        if event["type"] == "DELETED":
            known.remove(body)
            # who was refused because of this one may go on
            for waiting in same_app_id(body, known.all()):
                queue.add(waiting)
            queue.add(key)
            return
        old = known.get(key)
        known.put(body)
        if event["type"] is None or needs_look(old, body):
            queue.add(key)

    def watch_child(group: str, version: str, plural: str) -> None:
        @kopf.on.event(group, version, plural, id=f"on_{plural}", registry=registry)
        async def on_child(event: Mapping[str, Any], **_: Any) -> None:
            owner = _owner(event["object"])
            if owner is not None and known.get(owner) is not None and event["type"] is not None:
                queue.add(owner)

    for child in _CHILDREN:
        watch_child(*child)
    return registry


def _owner(body: Mapping[str, Any]) -> SchedulerKey | None:
    metadata = body["metadata"]
    for owner in metadata.get("ownerReferences", ()):
        if owner.get("controller") and owner["kind"] == KIND:
            return SchedulerKey(metadata["namespace"], owner["name"])
    name = metadata.get("labels", {}).get(SCHEDULER_LABEL)
    return SchedulerKey(metadata["namespace"], name) if name else None
