"""Recurring schedules: when the next fire is. Pure.

Cron expressions are read by cronsim, which follows Debian's cron on the days when clocks change: a
fire at a time that is skipped comes right after the gap, one at a time that occurs twice comes the
first time only; expressions with `*` or `*/n` in the hour keep their rhythm through both.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from punctual_worker.contract.actions import Plan
from punctual_worker.contract.codes import Code
from punctual_worker.contract.times import to_ms

MISSED_AFTER_MS: Final = 10_000
"""A fire handled later than this was missed: its misfire rule applies."""
OLDEST_BEGINNING_MS: Final = 366 * 24 * 3_600_000


class RecurrenceError(ValueError):
    """An expression or a time zone that nothing can be made of; `code` is the rejection's."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def next_fire(plan: Plan, after_ms: int) -> int:
    """The first fire after a moment, by the wall clock of the plan's zone, without spread."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=max(after_ms, 0))
    try:
        return to_ms(next(CronSim(plan.cron, moment.astimezone(_zone(plan.timezone)))))
    except CronSimError as error:
        raise RecurrenceError(
            Code.INVALID_CRON,
            f"x-scheduler-cron {plan.cron!r}: {error}; want five fields (minute, hour, day, month,"
            " weekday), or six with seconds first",
        ) from None
    except (StopIteration, OverflowError):
        raise RecurrenceError(
            Code.INVALID_CRON, f"x-scheduler-cron {plan.cron!r}: there is no such day, ever"
        ) from None


def fire_after(plan: Plan, fired_ms: int, now_ms: int) -> int:
    """The fire that follows one that was handled now: the next one, or with a misfire rule other
    than `all` the next one that is not missed. `now_ms` is without the schedule's spread."""
    if plan.misfire == "all":
        return next_fire(plan, fired_ms)
    return next_fire(plan, max(fired_ms, now_ms - MISSED_AFTER_MS - 1))


def is_skipped(plan: Plan, now_ms: int) -> bool:
    """Whether a fire that comes so late is left out. `now_ms` is without the schedule's spread.

    Not one that is late because its delivery failed: that is told when it is given up.
    """
    late = now_ms - plan.wanted_ms > MISSED_AFTER_MS
    return plan.misfire == "skip" and not plan.attempt and late


def first_fire(plan: Plan, now_ms: int) -> int:
    """The first fire of a schedule that is taken in now: counted from its request, but not from a
    timestamp so old (or missing) that `all` would fire for the whole of it."""
    return next_fire(plan, max(plan.due_ms, now_ms - OLDEST_BEGINNING_MS))


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (LookupError, OSError, ValueError) as error:
        raise RecurrenceError(
            Code.INVALID_TIMEZONE,
            f"x-scheduler-timezone {name!r}: there is no such zone; want an IANA name such as"
            " Europe/Berlin",
        ) from error
