"""One reconcile, level-based: observe, decide, apply, say how it is.

Create, update, resume, resync and events of children all end here, and nothing is remembered that
the world could not tell again; what is kept in memory only saves writes.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from punctual_operator.api.conditions import (
    DEGRADED,
    PAUSED,
    READY,
    Condition,
    find_transitions,
)
from punctual_operator.api.names import (
    EXECUTOR,
    FINALIZER,
    PARTS,
    PartName,
    SchedulerKey,
    key_of,
    part_name,
)
from punctual_operator.api.names import PAUSED as PAUSED_ANNOTATION
from punctual_operator.api.types import Scheduler, parse_scheduler
from punctual_operator.child_step import ChildrenOutcome, ChildStep
from punctual_operator.clients.kubernetes import Kubernetes
from punctual_operator.clients.workers import Workers
from punctual_operator.deletion import Deletion
from punctual_operator.errors import (
    ChangedError,
    ConflictError,
    InvalidSpecError,
    NotFoundError,
    OperatorError,
)
from punctual_operator.known import KnownSchedulers
from punctual_operator.plan.events import build_event, event_of
from punctual_operator.plan.figures import LatenessWindow, Sample, build_figures
from punctual_operator.plan.pods import describe_unready, is_ready
from punctual_operator.plan.readiness import Facts, PartFacts, decide_conditions
from punctual_operator.plan.status import Findings, build_status, is_worth_writing
from punctual_operator.resources.children import build_children
from punctual_operator.resources.pods import Defaults
from punctual_operator.topic_step import TopicsOutcome, TopicStep
from punctual_operator.workqueue import Result

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Steps:
    """What does the work."""

    topics: TopicStep
    children: ChildStep
    deletion: Deletion


@dataclass(frozen=True)
class _PodsView:
    by_part: Mapping[PartName, Sequence[Mapping[str, Any]]]
    samples: Mapping[PartName, Mapping[str, Sample]]
    reasons: Mapping[str, str]


class Reconciler:
    """Brings the world nearer to what a Scheduler says, and its status to what the world says."""

    def __init__(
        self,
        *,
        kubernetes: Kubernetes,
        workers: Workers,
        steps: Steps,
        known: KnownSchedulers,
        defaults: Defaults,
        figures_seconds: float,
    ) -> None:
        """`figures_seconds` is the least time between two writes that only change figures."""
        self._kubernetes = kubernetes
        self._workers = workers
        self._steps = steps
        self._known = known
        self._defaults = defaults
        self._figures_seconds = figures_seconds
        self._lateness: dict[SchedulerKey, LatenessWindow] = {}
        self._written_at: dict[SchedulerKey, float] = {}

    async def reconcile(self, key: SchedulerKey) -> Result:
        """One look at one Scheduler."""
        try:
            # Not from memory: a watch that was interrupted does not tell what vanished meanwhile.
            found = await self._kubernetes.read_scheduler(key)
            if found is None:
                self._forget(key)
                return Result.GONE
            body = self._known.put(found)
            if "deletionTimestamp" in body["metadata"]:
                return await self._finish(body)
            return await self._keep(body)
        except (NotFoundError, ChangedError):
            # Gone or changed meanwhile: the watch is about to tell.
            return Result.WAITING
        except OperatorError as error:
            _log.warning("%s: %s", key, error)
            return Result.FAILED

    async def _keep(self, body: dict[str, Any]) -> Result:
        try:
            scheduler = parse_scheduler(body)
        except InvalidSpecError as error:
            conditions = [
                Condition(READY, "False", error.reason, str(error)),
                Condition(DEGRADED, "True", error.reason, str(error)),
            ]
            await self._tell(body, conditions, status=_bare_status(body, conditions))
            return Result.SETTLED
        paused = body["metadata"].get("annotations", {}).get(PAUSED_ANNOTATION) == "true"
        if not paused:
            body = await self._keep_finalizer(body, scheduler)
        topics = await self._steps.topics.run(scheduler, body, paused=paused)
        children = await self._children(scheduler, topics, paused=paused)
        pods = await self._pods(scheduler, children)
        conditions = self._conditions(scheduler, topics, children, pods, paused=paused)
        key = key_of(body)
        window = self._lateness.setdefault(key, LatenessWindow())
        dispatchers = pods.samples["dispatcher"]
        findings = Findings(
            conditions=conditions,
            app_id=scheduler.app_id,
            cluster_id=topics.cluster_id,
            topics=topics.described,
            figures=build_figures(
                body.get("status") or {},
                dispatchers=dispatchers,
                intake=pods.samples["intake"],
                lateness_p99=window.p99(time.monotonic(), dispatchers) if dispatchers else None,
            ),
            dispatchers=_deployment(children, scheduler, "dispatcher"),
        )
        await self._tell(
            body,
            conditions,
            status=build_status(body, findings, now=_now()),
            news=[*topics.news, *children.news],
        )
        return _result(topics, children, conditions)

    async def _keep_finalizer(self, body: dict[str, Any], scheduler: Scheduler) -> dict[str, Any]:
        """Only where topics go with the Scheduler: others can be deleted without an operator."""
        metadata = body["metadata"]
        there = list(metadata.get("finalizers", ()))
        wanted = scheduler.spec.topics.deletion_policy == "Delete"
        if wanted == (FINALIZER in there):
            return body
        finalizers = [*there, FINALIZER] if wanted else [f for f in there if f != FINALIZER]
        changed = await self._kubernetes.set_finalizers(
            key_of(body), finalizers, resource_version=metadata["resourceVersion"]
        )
        return self._known.put(changed)

    async def _children(
        self, scheduler: Scheduler, topics: TopicsOutcome, *, paused: bool
    ) -> ChildrenOutcome:
        if isinstance(topics.error, ConflictError) and not paused:
            # two that serve one app id would do all work twice
            return await self._steps.children.run(scheduler, [])
        if paused or not topics.workers_may_run or topics.secrets is None:
            return await self._steps.children.observe(scheduler)
        wanted = build_children(
            scheduler, secret_hashes=topics.secrets.hashes, defaults=self._defaults
        )
        return await self._steps.children.run(scheduler, wanted)

    async def _pods(self, scheduler: Scheduler, children: ChildrenOutcome) -> _PodsView:
        """What the workers say; nothing is asked before there are any."""
        by_part: dict[PartName, list[Mapping[str, Any]]] = {part: [] for part in PARTS}
        executors: list[Mapping[str, Any]] = []
        if any(kind == "Deployment" for kind, _ in children.observed):
            key = SchedulerKey(scheduler.namespace, scheduler.name)
            for pod in await self._kubernetes.list_pods(key):
                part = pod["metadata"]["labels"].get("app.kubernetes.io/component")
                if part in by_part and pod.get("status", {}).get("phase") == "Running":
                    by_part[part].append(pod)
                elif part in by_part:
                    by_part[part].append({**pod, "status": {**pod.get("status", {}), "podIP": ""}})
                elif part == EXECUTOR:
                    executors.append(pod)
        samples: dict[PartName, Mapping[str, Sample]] = {
            "intake": await self._workers.samples(by_part["intake"]),
            "dispatcher": await self._workers.samples(by_part["dispatcher"]),
        }
        silent = [pod for pods in by_part.values() for pod in pods if not is_ready(pod)]
        reasons = await self._workers.reasons(silent)
        # nothing can be asked of executors, but why they do not run is why intake does not
        by_part["intake"] += executors
        return _PodsView(by_part, samples, reasons)

    def _conditions(
        self,
        scheduler: Scheduler,
        topics: TopicsOutcome,
        children: ChildrenOutcome,
        pods: _PodsView,
        *,
        paused: bool,
    ) -> list[Condition]:
        spec = scheduler.spec
        wanted: dict[PartName, int | None] = {
            "intake": 1,
            "dispatcher": spec.dispatchers.replicas,
            "console": 1 if spec.console.state == "Enabled" else None,
        }
        facts = Facts(
            topics=topics.condition,
            parts={
                part: PartFacts(
                    wanted=wanted[part],
                    deployment=_deployment(children, scheduler, part),
                    unready=describe_unready(pods.by_part[part], pods.reasons, now=time.time()),
                )
                for part in PARTS
            },
            samples=pods.samples["dispatcher"],
            paused=paused,
            children_error=children.error,
        )
        return decide_conditions(facts)

    async def _tell(
        self,
        body: dict[str, Any],
        conditions: Sequence[Condition],
        *,
        status: Mapping[str, Any],
        news: Sequence[str] = (),
    ) -> None:
        """Write the status if it is worth it, then events for what has changed."""
        key, old = key_of(body), body.get("status") or {}
        since = time.monotonic() - self._written_at.get(key, 0.0)
        if is_worth_writing(old, status, seconds_since_write=since, least=self._figures_seconds):
            self._known.put(await self._kubernetes.apply_status(key, status))
            self._written_at[key] = time.monotonic()
        events = [
            event_of(change)
            for change in find_transitions(
                [c for c in old.get("conditions", ()) if c["type"] in (READY, DEGRADED, PAUSED)],
                [c for c in conditions if c.type in (READY, DEGRADED, PAUSED)],
            )
        ]
        if news:
            events.append(("Normal", "Changed", f"{'; '.join(news)}."))
        for event in events:
            if event is None:
                continue
            kind, reason, message = event
            _log.info("%s: %s: %s", key, reason, message)
            try:
                await self._kubernetes.create_event(
                    build_event(body, kind=kind, reason=reason, message=message, now=_now())
                )
            except OperatorError as error:  # for people only: nothing depends on it
                _log.warning("%s: no event could be written: %s", key, error)

    async def _finish(self, body: dict[str, Any]) -> Result:
        try:
            return Result.GONE if await self._steps.deletion.run(body) else Result.WAITING
        except (NotFoundError, ChangedError):
            raise
        except OperatorError as error:
            conditions = [
                Condition(READY, "False", error.reason, str(error)),
                Condition(DEGRADED, "True", error.reason, str(error)),
            ]
            await self._tell(body, conditions, status=_bare_status(body, conditions))
            return Result.FAILED

    def _forget(self, key: SchedulerKey) -> None:
        self._known.drop(key)
        self._lateness.pop(key, None)
        self._written_at.pop(key, None)
        self._steps.children.forget(key)


def _deployment(
    children: ChildrenOutcome, scheduler: Scheduler, part: PartName
) -> dict[str, Any] | None:
    return children.observed.get(("Deployment", part_name(scheduler.name, part)))


def _bare_status(body: Mapping[str, Any], conditions: Sequence[Condition]) -> dict[str, Any]:
    """What was known stays; only the conditions are new."""
    old = dict(body.get("status") or {})
    findings = Findings(
        conditions=conditions,
        app_id=old.get("appId", body["metadata"]["name"]),
        cluster_id=None,
        topics=(),
        figures={},
        dispatchers=None,
    )
    new = build_status(body, findings, now=_now())
    return {**old, "conditions": new["conditions"], "observedGeneration": new["observedGeneration"]}


def _result(
    topics: TopicsOutcome, children: ChildrenOutcome, conditions: Sequence[Condition]
) -> Result:
    if topics.error is not None and not isinstance(topics.error, ConflictError):
        return Result.FAILED
    if children.error is not None:
        return Result.FAILED
    if isinstance(topics.error, ConflictError):
        return Result.SETTLED
    under_way = any(
        condition.type not in (DEGRADED, PAUSED)
        and (condition.status != "True" or condition.reason == "RollingOut")
        and condition.reason not in ("ChangeRefused", "ScaledToZero", "DispatchersScaledToZero")
        for condition in conditions
    )
    return Result.WAITING if under_way else Result.SETTLED


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
