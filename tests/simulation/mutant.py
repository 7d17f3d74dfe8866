"""What deliberate mistakes are made of."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.partition import Partition
from punctual_worker.dispatch.timetable import PartitionTurn
from punctual_worker.dispatch.verdicts import Judge
from simulation.protocol import Protocol


class Mutant(NamedTuple):
    """A mistake, in words and in code."""

    mistake: str
    protocol: Protocol
    emphasis: Mapping[str, float] = MappingProxyType({})
    """What has to happen more often for the mistake to show soon; see `World`."""


MOVING: Final = {"recurring": 0, "rebalance": 8, "stop_fleet": 0, "outage": 0}
AGEING: Final = {
    "recurring": 0,
    "rebalance": 4,
    "long_time": 6,
    "compact": 3,
    "stop_fleet": 0,
    "outage": 0,
}


def with_turn(turn_class: type[PartitionTurn]) -> Protocol:
    """The right protocol, with turns of this kind."""

    class MutantPartition(Partition):
        def turn(self, *, judge: Judge, now_ms: int) -> PartitionTurn:
            return turn_class(
                self.table,
                self.checkpoint,
                ahead=self.ahead,
                policy=self._policy,
                judge=judge,
                now_ms=now_ms,
            )

    return Protocol(partition=MutantPartition)


class RearmedOtherwise(PartitionTurn):
    """Re-arms as it should, then changes what was re-armed."""

    def _rearm(self, entry: Entry, **when: Any) -> None:
        super()._rearm(entry, **when)
        again = self._out.rearmed.pop()
        self._out.changes.puts.pop(again.order)
        again = self._spoil(again, entry)
        self._out.rearmed.append(again)
        self._put(again.order, again)

    def _spoil(self, again: Entry, entry: Entry) -> Entry:
        raise NotImplementedError
