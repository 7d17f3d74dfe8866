"""Deliberate mistakes about PAUSE and RESUME."""

from typing import Any, Final

from punctual_worker.contract import actions
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.timetable import PartitionTurn
from simulation.mutant import MOVING, Mutant, with_turn

_PAUSING: Final = {"pausing": 0.4, "stop_fleet": 0, "outage": 0}


class _PausesNothing(PartitionTurn):
    def _rearm(self, entry: Entry, *, due_ms: int, attempt: int, **more: Any) -> None:
        if due_ms == actions.NEVER_MS:
            due_ms = max(entry.plan.wanted_ms, self._now_ms + 1)
        super()._rearm(entry, due_ms=due_ms, attempt=attempt, **more)


class _ResumesAtOnce(PartitionTurn):
    def _resume(self, standing: Entry) -> None:
        self._remove(standing)
        going_on = standing._replace(plan=standing.plan.resume())
        self._rearm(going_on, due_ms=self._now_ms + 1, attempt=0)


class _PausedOnlyInTable(PartitionTurn):
    def _rearm(self, entry: Entry, *, due_ms: int, **more: Any) -> None:
        super()._rearm(entry, due_ms=due_ms, **more)
        if due_ms == actions.NEVER_MS:
            self._out.rearmed.pop()


class _PausedLeavesItsRecord(PartitionTurn):
    def _rearm(self, entry: Entry, *, due_ms: int, **more: Any) -> None:
        super()._rearm(entry, due_ms=due_ms, **more)
        if due_ms == actions.NEVER_MS:
            self._out.tombstones.pop()


class _ResumedIsForgotten(PartitionTurn):
    def _resume(self, standing: Entry) -> None:
        self._remove(standing)


PAUSING_MUTANTS: Final[dict[str, Mutant]] = {
    "pause-ignored": Mutant("a paused schedule fires", with_turn(_PausesNothing), _PAUSING),
    "resume-at-once": Mutant(
        "a resumed schedule fires before its time", with_turn(_ResumesAtOnce), _PAUSING
    ),
    "pause-not-in-log": Mutant(
        "that a schedule is paused stands in the table alone",
        with_turn(_PausedOnlyInTable),
        {**_PAUSING, **MOVING},
    ),
    "paused-not-buried": Mutant(
        "the record of what was paused stays alive beside the paused one",
        with_turn(_PausedLeavesItsRecord),
        {**_PAUSING, **MOVING},
    ),
    "resume-forgets": Mutant(
        "RESUME removes what was paused", with_turn(_ResumedIsForgotten), _PAUSING
    ),
}
