"""What is known of destinations: which exist, and which are failing.

Every destination is checked against a full topic listing before the first produce to it: asking the
broker for one topic by name would create it where auto-creation is on. One that fails is kept out
of the transactions of the others: its messages are deferred, and after a pause one of them is tried
alone.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from punctual_worker.contract.codes import Code
from punctual_worker.dispatch.entries import Entry, base_key
from punctual_worker.dispatch.verdicts import Judgement, Verdict

_LIST_AGAIN_MS: Final = 50
"""Least time between two listings that somebody waits for, ..."""
_LISTING_SHARE: Final = 20
"""... and one part in so many of all time is spent on them, however large the cluster."""
_LISTING_AGE_MS: Final = 30_000
"""Most time before a deleted topic is noticed without a delivery having to fail."""
_FIRST_PAUSE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 30_000
_MOST_SUSPECTS: Final = 10_000

V = TypeVar("V")

_READY: Final = Verdict(Judgement.READY)
_PROBE: Final = Verdict(Judgement.PROBE)


class Fault(NamedTuple):
    """Why a record did not reach its destination."""

    topic: str
    code: Code
    reason: str
    action_key: bytes | None = None
    """Set where the fault is in this one message, not in its destination."""


@dataclass
class _Failing:
    until_ms: int
    pause_ms: int
    code: Code
    reason: str


class Destinations:
    """Judges deliveries."""

    def __init__(
        self, list_partitions: Callable[[], Mapping[str, int]], clock_ms: Callable[[], int]
    ) -> None:
        """`list_partitions` gives every topic of the cluster with its partition count."""
        self._list_partitions = list_partitions
        self._clock_ms = clock_ms
        self._known: Mapping[str, int] = {}
        self._listed_ms = -_LISTING_AGE_MS
        self._list_again_ms = _LIST_AGAIN_MS
        self._failing: dict[str, _Failing] = {}
        self._failed_messages: dict[bytes, Fault] = {}
        self._suspects: dict[bytes, None] = {}

    def judge(self, entry: Entry) -> Verdict:
        """Whether this message can be tried now."""
        topic, partition = entry.plan.destination, entry.plan.partition
        if self._all_well and partition is None and topic in self._known:
            return _READY
        fault = self._failed_messages.get(entry.key)
        if fault is not None:
            return Verdict(Judgement.DEFER, fault.code, fault.reason)
        failing = self._failing.get(topic)
        if failing is not None and self._clock_ms() < failing.until_ms:
            return Verdict(Judgement.DEFER, failing.code, failing.reason)
        count = self._partitions(topic, at_least=(partition or 0) + 1)
        if count is None:
            return Verdict(
                Judgement.DEFER,
                Code.UNKNOWN_DESTINATION,
                f"x-scheduler-deliver-to {topic!r}: there is no such topic",
            )
        if partition is not None and partition >= count:
            return Verdict(
                Judgement.DEFER,
                Code.DELIVERY_FAILED,
                f"x-scheduler-deliver-partition {partition}: topic {topic!r} has {count}",
            )
        if failing is not None or base_key(entry.key) in self._suspects:
            return _PROBE
        return _READY

    def all_ready(self, destinations: Set[str]) -> bool:
        """Whether `judge` would let everything to these pass that does not ask for a partition."""
        return self._all_well and destinations <= self._known.keys()

    def count(self, topic: str) -> int | None:
        """Partitions of a topic, as far as known: always of what was judged to be ready."""
        return self._known.get(topic)

    @property
    def _all_well(self) -> bool:
        return not (self._failing or self._failed_messages or self._suspects)

    def failed(self, faults: Iterable[Fault]) -> None:
        """A transaction was aborted because of these."""
        for fault in faults:
            if fault.action_key is not None:
                _bounded(self._failed_messages)[fault.action_key] = fault
                _bounded(self._suspects)[base_key(fault.action_key)] = None
                continue
            if fault.code is Code.UNKNOWN_DESTINATION:
                self._known = {name: n for name, n in self._known.items() if name != fault.topic}
            before = self._failing.get(fault.topic)
            pause_ms = _FIRST_PAUSE_MS
            if before is not None and before.pause_ms:
                pause_ms = min(before.pause_ms * 2, _LONGEST_PAUSE_MS)
            self._failing[fault.topic] = _Failing(
                self._clock_ms() + pause_ms, pause_ms, fault.code, fault.reason
            )

    def suspect(self, topics: Iterable[str]) -> None:
        """One of these made a transaction fail, nobody knows which: try each of them alone."""
        for topic in topics:
            if topic not in self._failing:
                self._failing[topic] = _Failing(0, 0, Code.DELIVERY_FAILED, "")

    def delivered(self, topics: Iterable[str]) -> None:
        """A transaction that wrote to these was committed."""
        if self._failing:
            for topic in topics:
                self._failing.pop(topic, None)

    def refresh_if_old(self) -> None:
        """List the topics again if the listing is old; called when there is time."""
        if self._clock_ms() - self._listed_ms > _LISTING_AGE_MS:
            self._list()

    def _partitions(self, topic: str, *, at_least: int) -> int | None:
        count = self._known.get(topic)
        if (count is None or count < at_least) and not self._listed_lately():
            self._list()
            count = self._known.get(topic)
        return count

    def _listed_lately(self) -> bool:
        return 0 <= self._clock_ms() - self._listed_ms < self._list_again_ms

    def _list(self) -> None:
        began_ms = self._clock_ms()
        self._known = self._list_partitions()
        self._listed_ms = self._clock_ms()
        self._list_again_ms = max(_LIST_AGAIN_MS, (self._listed_ms - began_ms) * _LISTING_SHARE)


def _bounded(remembered: dict[bytes, V]) -> dict[bytes, V]:
    """Forget the oldest: what is forgotten is only tried once more."""
    while len(remembered) >= _MOST_SUSPECTS:
        del remembered[next(iter(remembered))]
    return remembered
