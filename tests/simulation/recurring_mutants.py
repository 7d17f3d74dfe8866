"""Deliberate mistakes with recurring schedules; see `mutants`."""

from typing import Final

from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan
from punctual_worker.dispatch import entries, recurrence
from punctual_worker.dispatch.deliveries import Delivery
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.timetable import PartitionTurn
from punctual_worker.dispatch.verdicts import Verdict
from simulation.mutant import MOVING, Mutant, RearmedOtherwise, with_turn
from simulation.protocol import Protocol

_RECURRING: Final = {"recurring": 0.8}


class _EndsWithAFailure(PartitionTurn):
    def _retry(self, entry: Entry, verdict: Verdict) -> bool:
        super()._retry(entry, verdict)
        return True


class _ArmsBesideARetry(PartitionTurn):
    def _retry(self, entry: Entry, verdict: Verdict) -> bool:
        again = super()._retry(entry, verdict)
        return again and not entry.plan.cron


class _OneKeyForAllFires(RearmedOtherwise):
    def _spoil(self, again: Entry, entry: Entry) -> Entry:
        return again._replace(key=entries.base_key(entry.key) + b"#1") if again.plan.cron else again


class _OverdueFireBehindCursor(PartitionTurn):
    def _await_fire(self, entry: Entry, fire_ms: int) -> None:
        due_ms = fire_ms + entries.recurring_spread_ms(entry)
        self._rearm(entry, due_ms=due_ms, attempt=0, scheduled_for_ms=fire_ms)


class _CountsFromNow(PartitionTurn):
    """Every fire is meant, but the next one is counted from when the last was handled."""

    def _await_fire(self, entry: Entry, fire_ms: int) -> None:
        if entry.plan.misfire == "all" and entries.is_own(entry.key):
            fire_ms = recurrence.next_fire(entry.plan, self._now_ms)
        super()._await_fire(entry, fire_ms)


class _CallsLateMissed(PartitionTurn):
    """Leaves out whatever is overdue, be it by a millisecond: what was wrong in the first version,
    as was counting from the time without spread."""

    def _await_fire(self, entry: Entry, fire_ms: int) -> None:
        if fire_ms <= self._now_ms and entry.plan.misfire != "all" and entries.is_own(entry.key):
            fire_ms = recurrence.next_fire(entry.plan, self._now_ms)
        super()._await_fire(entry, fire_ms)


class _SpreadIsLateness(PartitionTurn):
    def _unspread_ms(self, entry: Entry) -> int:
        return self._now_ms


class _MissedFiresAllLeftOut(PartitionTurn):
    """Goes on after an outage as if nothing had been due: no fire to catch up with `once`."""

    def _fire(self, entry: Entry, delivery: Delivery, verdict: Verdict) -> None:
        plan = entry.plan
        if plan.cron and plan.misfire == "once":
            entry = entry._replace(plan=plan._replace(misfire="skip"))
            super()._fire(entry, delivery, verdict)
            for again in self._out.rearmed:
                if entries.base_key(again.key) == entries.base_key(entry.key):
                    self._give_rule_back(again, plan)
        else:
            super()._fire(entry, delivery, verdict)

    def _give_rule_back(self, again: Entry, plan: Plan) -> None:
        self._out.rearmed.remove(again)
        again = again._replace(plan=again.plan._replace(misfire=plan.misfire))
        self._out.rearmed.append(again)
        self._put(again.order, again)


class _RequestNotBuried(PartitionTurn):
    def _arm(self, entry: Entry) -> None:
        super()._arm(entry)
        if entry.plan.cron:
            self._out.tombstones.remove(entry)


class _RequestPutAsWell(PartitionTurn):
    """A recurring request is itself taken for its first fire."""

    def _arm(self, entry: Entry) -> None:
        super()._arm(entry)
        if entry.plan.cron and entry.order > self._before.cursor:
            self._out.tombstones.remove(entry)
            self._out.changes.put(entry.order, entry)


class _RestartsOnRepetition(PartitionTurn):
    """A producer's retry of a recurring request begins a second run beside the first."""

    def _decide(self, entry: Entry) -> None:
        plan = entry.plan
        standing = self._find(plan.request_id) if plan.request_id else None
        if standing is not None and plan.cron and entries.same_request(standing, entry):
            self._arm(entry)
        else:
            super()._decide(entry)


class _OverlooksSpread(PartitionTurn):
    """A REPLACE that changes nothing but the spread is taken for a repetition."""

    def _decide(self, entry: Entry) -> None:
        plan = entry.plan
        standing = self._find(plan.request_id) if plan.request_id else None
        alike = standing is not None and entries.same_request(
            standing._replace(headers=[]), entry._replace(headers=[])
        )
        if alike and plan.cron:
            self._out.tombstones.append(entry)
        else:
            super()._decide(entry)


class _OldReplayStartsAgain(PartitionTurn):
    """After a long outage a replayed request without id begins a second run."""

    def _take_replay(self, entry: Entry, written_ms: int) -> None:
        plan = entry.plan
        compacted = self._now_ms - written_ms > self._policy.compaction_lag_ms
        if compacted and plan.cron and not plan.request_id:
            self._decide(entry)
        else:
            super()._take_replay(entry, written_ms)


class _EndsNever(PartitionTurn):
    """An expired fire is reported, and the next one armed."""

    def _expire(self, entry: Entry, expires_ms: int) -> None:
        super()._expire(entry, expires_ms)
        plan = entry.plan
        if plan.cron:
            self._await_fire(entry, recurrence.fire_after(plan, plan.wanted_ms, self._now_ms))


class _CancelsOnlyTheRequest(PartitionTurn):
    """A CANCEL removes the row that the request would have, not the fire that stands for it."""

    def _remove(self, entry: Entry) -> None:
        if entry.plan.cron:
            key = entries.base_key(entry.key)
            self._out.changes.remove(actions.order_key(entry.plan.due_ms, key), "")
            self._pending_ids[entry.plan.request_id] = None
            self._out.tombstones.append(entry._replace(key=key))
        else:
            super()._remove(entry)


def _recurring(mistake: str, turn_class: type[PartitionTurn]) -> Mutant:
    return Mutant(mistake, with_turn(turn_class), _RECURRING)


RECURRING_MUTANTS: Final[dict[str, Mutant]] = {
    "fire-armed-outside": Mutant(
        "the next fire is armed outside of the transaction",
        Protocol(fires_in_transaction=False),
        _RECURRING,
    ),
    "fire-armed-by-zombie": Mutant(
        "who is refused arms the next fires all the same",
        Protocol(arms_fires_though_refused=True),
        {**MOVING, **_RECURRING},
    ),
    "failure-ends-series": _recurring(
        "no fire is armed after one that failed for good", _EndsWithAFailure
    ),
    "fire-armed-beside-retry": _recurring(
        "the next fire is armed although the last is tried again", _ArmsBesideARetry
    ),
    "fires-share-a-key": _recurring("all fires have the same key", _OneKeyForAllFires),
    "fire-behind-cursor": _recurring(
        "an overdue fire is armed where the cursor has passed", _OverdueFireBehindCursor
    ),
    "fires-counted-from-now": _recurring(
        "with «all», the next fire is counted from when the last was handled", _CountsFromNow
    ),
    "late-fires-left-out": _recurring(
        "a fire that is a little late is left out as if missed", _CallsLateMissed
    ),
    "spread-counts-as-late": _recurring(
        "a fire that its spread moves is taken for late", _SpreadIsLateness
    ),
    "no-catching-up": _recurring(
        "with «once», no fire comes for those missed", _MissedFiresAllLeftOut
    ),
    "recurring-request-not-buried": _recurring(
        "a recurring request gets no tombstone", _RequestNotBuried
    ),
    "recurring-request-fires": _recurring(
        "a recurring request is a fire of its own", _RequestPutAsWell
    ),
    "repetition-starts-second-run": _recurring(
        "the same recurring request again starts it again", _RestartsOnRepetition
    ),
    "spread-overlooked": _recurring(
        "the same recurring request with another spread changes nothing", _OverlooksSpread
    ),
    "old-replay-starts-second-run": Mutant(
        "after a long outage a replay without id starts it again",
        with_turn(_OldReplayStartsAgain),
        {**_RECURRING, "outage": 6, "intake_crash": 3},
    ),
    "series-never-expires": _recurring("fires are armed past the expiry", _EndsNever),
    "cancel-misses-the-fire": _recurring(
        "a CANCEL leaves the armed fire alone", _CancelsOnlyTheRequest
    ),
}
