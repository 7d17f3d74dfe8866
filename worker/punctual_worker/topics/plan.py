"""What has to change so that topics are as wanted. Pure: facts in, plan out.

Only what is wanted is compared: configuration that an administrator added by hand stays. What Kafka
cannot change without harm (partition count: an id's partition would move; replication factor: needs
a reassignment) is refused, and everything else is still applied.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from punctual_worker.contract.topics import BROKERS_DEFAULT, TopicSpec

Trouble = Literal["unreachable", "unauthenticated", "denied", "refused"]
"""Kinds of failure, for who has to tell them apart."""
_NOTHING: Final[Mapping[str, Collection[str]]] = MappingProxyType({})


@dataclass(frozen=True)
class TopicState:
    """A topic as it is."""

    name: str
    partitions: int
    replication_factors: Mapping[int, int]
    """By partition: they can differ."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Effective values, inherited ones included."""
    overrides: frozenset[str] = frozenset()
    """Entries that are set for this topic itself."""


@dataclass(frozen=True)
class Repair:
    """One configuration entry that has to change."""

    key: str
    old: str | None
    new: str | None
    """None gives the broker's default back."""


@dataclass(frozen=True)
class TopicPlan:
    """What to do about one topic."""

    spec: TopicSpec
    create: bool = False
    repairs: tuple[Repair, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether there is anything to apply."""
        return self.create or bool(self.repairs)

    @property
    def in_order(self) -> bool:
        """Whether the topic is as wanted already."""
        return not self.changes and not self.refusals


@dataclass(frozen=True)
class TopicResult:
    """What became of one topic's plan."""

    plan: TopicPlan
    applied: bool
    error: str | None = None
    trouble: Trouble | None = None

    @property
    def ok(self) -> bool:
        """Whether the topic is as wanted now."""
        return self.error is None and not self.plan.refusals and self.applied


def plan_topics(
    existing: Mapping[str, TopicState],
    wanted: Iterable[TopicSpec],
    *,
    released: Mapping[str, Collection[str]] = _NOTHING,
) -> list[TopicPlan]:
    """One plan per wanted topic, in the order they were given.

    `released` are the entries, by topic, that were ours and are no longer wanted: where they are
    still set, the broker's default is given back.
    """
    return [
        _plan_topic(existing.get(spec.name), spec, released.get(spec.name, ())) for spec in wanted
    ]


def _plan_topic(state: TopicState | None, spec: TopicSpec, released: Collection[str]) -> TopicPlan:
    if state is None:
        return TopicPlan(spec, create=True)
    repairs = [
        Repair(key, state.config.get(key), value)
        for key, value in spec.config.items()
        if state.config.get(key) != value
    ]
    repairs += [
        Repair(key, state.config.get(key), None)
        for key in sorted(state.overrides & set(released) - spec.config.keys())
    ]
    return TopicPlan(spec, repairs=tuple(repairs), refusals=tuple(_refusals(state, spec)))


def _refusals(state: TopicState, spec: TopicSpec) -> Iterable[str]:
    if state.partitions != spec.partitions:
        yield (
            f"it has {state.partitions} partitions and {spec.partitions} are wanted, but the count "
            "cannot change after creation: schedules would be looked for in other partitions"
        )
    odd = {
        partition: factor
        for partition, factor in state.replication_factors.items()
        if factor != spec.replication_factor and spec.replication_factor != BROKERS_DEFAULT
    }
    if odd:
        factors = ", ".join(str(factor) for factor in sorted(set(odd.values())))
        where = (
            "all partitions"
            if len(odd) == state.partitions
            else f"partition {', '.join(str(partition) for partition in sorted(odd))}"
        )
        yield (
            f"its replication factor is {factors} ({where}) and {spec.replication_factor} is "
            "wanted: reassign the replicas with Kafka's own tools, or change the setting"
        )
