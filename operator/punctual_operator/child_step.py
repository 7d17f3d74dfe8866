"""The part of a reconcile that deals with children: see, decide, apply, prune."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from punctual_operator.api.names import SchedulerKey
from punctual_operator.api.types import Scheduler
from punctual_operator.clients.kubernetes import Kubernetes
from punctual_operator.errors import NameTakenError, OperatorError
from punctual_operator.plan.changes import (
    ChildId,
    Differences,
    child_id,
    find_differences,
    is_owned,
    plan_children,
)


@dataclass(frozen=True)
class ChildrenOutcome:
    """The children as they are now."""

    observed: Mapping[ChildId, dict[str, Any]]
    error: OperatorError | None = None
    news: Sequence[str] = ()


class ChildStep:
    """Applies what is wanted and differs, deletes what is ours and not wanted."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._accepted: dict[SchedulerKey, dict[ChildId, Differences]] = {}

    def forget(self, key: SchedulerKey) -> None:
        """The Scheduler is gone."""
        self._accepted.pop(key, None)

    async def observe(self, scheduler: Scheduler) -> ChildrenOutcome:
        """What there is, without a change."""
        key = SchedulerKey(scheduler.namespace, scheduler.name)
        try:
            found = await self._kubernetes.list_children(key)
        except OperatorError as error:
            return ChildrenOutcome({}, error)
        return ChildrenOutcome(
            {name: child for name, child in found.items() if is_owned(child, scheduler.uid)}
        )

    async def run(self, scheduler: Scheduler, wanted: Sequence[dict[str, Any]]) -> ChildrenOutcome:
        """One child's failure stops no other; the first is told."""
        before = await self.observe(scheduler)
        if before.error is not None:
            return before
        key = SchedulerKey(scheduler.namespace, scheduler.name)
        accepted = self._accepted.setdefault(key, {})
        plan = plan_children(wanted, before.observed, owner_uid=scheduler.uid, accepted=accepted)
        observed = dict(before.observed)
        news: list[str] = []
        failure: OperatorError | None = None
        for child in plan.apply:
            name = child_id(child)
            try:
                if name not in observed:
                    await self._refuse_foreign(scheduler, child)
                observed[name] = await self._kubernetes.apply_child(child)
                accepted[name] = find_differences(child, observed[name])
                news.append(f"{child['kind']} {child['metadata']['name']} applied")
            except OperatorError as error:
                failure = failure or error
        for child in plan.delete:
            try:
                await self._kubernetes.delete_child(child)
                observed.pop(child_id(child), None)
                news.append(f"{child['kind']} {child['metadata']['name']} deleted")
            except OperatorError as error:
                failure = failure or error
        return ChildrenOutcome(observed, failure, news)

    async def _refuse_foreign(self, scheduler: Scheduler, child: Mapping[str, Any]) -> None:
        """Applying would make another's object ours, and delete it with the Scheduler."""
        existing = await self._kubernetes.read_child(child)
        if existing is None or is_owned(existing, scheduler.uid):
            return
        raise NameTakenError(
            f"{child['kind']} {child['metadata']['name']} is there already and does not belong to "
            "this Scheduler: remove or rename it, or give the Scheduler another name."
        )
