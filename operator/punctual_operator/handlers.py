"""Kopf's decorators: unpack what the watches tell, and put the Scheduler into the queue.

Only raw events are handled, so kopf itself writes nothing: no finalizers, no annotations. It runs
in a thread and loop of its own, because it takes whatever else runs in its loop for its own when it
ends; what it tells is handed over.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
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
Listener = Callable[[str | None, dict[str, Any]], object]
"""Is told the type of an event (None for what was there before) and the object."""


class Listeners:
    """Who is told of events, in the loop of the work queue."""

    def __init__(self, queue: WorkQueue, known: KnownSchedulers) -> None:
        self._queue = queue
        self._known = known

    def on_scheduler(self, kind: str | None, body: dict[str, Any]) -> None:
        """A Scheduler is there, has changed or is gone."""
        key = key_of(body)
        if kind == "DELETED":
            self._known.remove(body)
            # who was refused because of this one may go on
            for waiting in same_app_id(body, self._known.all()):
                self._queue.add(waiting)
            self._queue.add(key)
            return
        old = self._known.get(key)
        self._known.put(body)
        if kind is None or needs_look(old, body):
            self._queue.add(key)

    def on_child(self, kind: str | None, body: dict[str, Any]) -> None:
        """Something of ours has changed; what was there before is looked at anyway."""
        owner = _owner(body)
        if kind is not None and owner is not None and self._known.get(owner) is not None:
            self._queue.add(owner)


class Watches:
    """Kopf, from `start` to `stop`."""

    def __init__(self, listeners: Listeners, *, namespaces: Sequence[str]) -> None:
        """Without namespaces everything is watched. To be made in the listeners' loop."""
        loop = asyncio.get_running_loop()
        self._namespaces = namespaces
        self._stop = threading.Event()
        self._loop = loop
        self._registry = _make_registry(
            lambda kind, body: loop.call_soon_threadsafe(listeners.on_scheduler, kind, body),
            lambda kind, body: loop.call_soon_threadsafe(listeners.on_child, kind, body),
        )
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)
        self.ended = asyncio.Event()
        """Set when kopf has ended, by our wish or not."""

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    async def stop(self) -> None:
        """Tell no more."""
        self._stop.set()
        await self.ended.wait()

    def _run(self) -> None:
        try:
            kopf.run(
                registry=self._registry,
                settings=_settings(),
                standalone=True,
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
                stop_flag=self._stop,
            )
        finally:
            self._loop.call_soon_threadsafe(self.ended.set)


def _settings() -> kopf.OperatorSettings:
    """No scanning for namespaces and kinds, which needs rights; no events of kopf's own."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    for group, _, plural in _CHILDREN:
        settings.watching.label_selectors[f"{group}/{plural}" if group else plural] = _OURS
    return settings


def _make_registry(tell_scheduler: Listener, tell_child: Listener) -> kopf.OperatorRegistry:
    """What is watched, and who is told."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**details: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_via_client(**details)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def on_scheduler(event: Mapping[str, Any], **_: Any) -> None:
        tell_scheduler(event["type"], dict(event["object"]))

    def watch_child(group: str, version: str, plural: str) -> None:
        @kopf.on.event(group, version, plural, id=f"on_{plural}", registry=registry)
        async def on_child(event: Mapping[str, Any], **_: Any) -> None:
            tell_child(event["type"], dict(event["object"]))

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
