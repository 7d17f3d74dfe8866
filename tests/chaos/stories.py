"""Recurring and paused schedules held against what must have come of them. Pure.

Each has an id of its own: one ADD, perhaps PAUSE and RESUME, and for a recurring one a CANCEL.
Nobody can foretell when a PAUSE, RESUME or CANCEL is decided; history tells, in the transaction
that does it, and what was delivered must agree with that to the fire:

- recurring, `misfire` being `all`: each fire after the request's time and before the one that the
  CANCEL removed, once; no other
- paused: nothing between PAUSE and RESUME; not before the RESUME was even asked for
"""

from collections import Counter

from chaos.fates import Fate, Told, Verdict
from chaos.load import Request

SLACK_MS = 5_000
"""A turn that delivers at once may write a moment after the time it tells of."""


def is_over(add: Request, fate: Fate) -> bool:
    """Whether nothing more is to come."""
    return bool(fate.codes or (fate.of("Cancelled") if add.every_ms else fate.delivered_ms))


def judge_story(requests: list[Request], fates: dict[str, Fate], verdict: Verdict) -> None:
    """Adds what is wrong with the requests of one id, in the order of their offsets."""
    add = requests[0]
    fate = fates.get(add.source, Fate())
    about = f"{[(r.verb, r.at_ms) for r in requests]} {add} {fate}"
    if fate.codes:
        verdict.wrong.append(f"rejected though nothing was wrong with it: {about}")
    others = [fates.get(request.source, Fate()) for request in requests[1:]]
    if any(other.delivered_ms or other.codes for other in others):
        verdict.wrong.append(f"what only steers was delivered or rejected: {about}")
    if any(at_ms < wanted_ms for wanted_ms, at_ms in fate.fires):
        verdict.early.append(about)
    if any(count > 1 for count in Counter(fire.wanted_ms for fire in fate.fires).values()):
        verdict.twice.append(about)
    if add.every_ms:
        _judge_fires(add, fate, about, verdict)
    elif not fate.fires:
        verdict.lost.append(about)
    elif any(fire.wanted_ms != add.due_ms for fire in fate.fires):
        verdict.wrong.append(f"for another time than asked for: {about}")
    by_verb = {request.verb: request for request in requests}
    if "PAUSE" in by_verb:
        missed = fates.get(by_verb["PAUSE"].source, Fate()).of("PauseMissed")
        _judge_pause(by_verb["RESUME"], fate, missed, about, verdict)


def _judge_fires(add: Request, fate: Fate, about: str, verdict: Verdict) -> None:
    cancelled = fate.of("Cancelled")
    if len(cancelled) != 1:
        verdict.lost.append(f"the CANCEL found no recurring schedule: {about}")
        return
    first = (add.at_ms // add.every_ms + 1) * add.every_ms
    expected = set(range(first, cancelled[0].wanted_ms, add.every_ms))
    found = {fire.wanted_ms for fire in fate.fires}
    if missing := sorted(expected - found):
        verdict.lost.append(f"fires {missing[:5]} of {about}")
    if surplus := sorted(found - expected):
        verdict.wrong.append(f"no such fire, or after the CANCEL: {surplus[:5]} of {about}")
    if cancelled[0].wanted_ms % add.every_ms or cancelled[0].wanted_ms < first:
        verdict.wrong.append(f"the CANCEL removed a fire that there is not: {about}")


def _judge_pause(
    resume: Request, fate: Fate, missed: list[Told], about: str, verdict: Verdict
) -> None:
    paused, resumed = fate.of("Paused"), fate.of("Resumed")
    if missed and not paused:
        if any(fire.at_ms > missed[0].at_ms + SLACK_MS for fire in fate.fires):
            verdict.wrong.append(f"delivered after PAUSE had found nothing to pause: {about}")
        return
    if len(paused) != 1 or len(resumed) != 1:
        verdict.wrong.append(f"not paused and resumed once each: {about}")
        return
    begin_ms, end_ms = paused[0].at_ms, max(resumed[0].at_ms, resume.at_ms)
    if any(begin_ms < fire.at_ms < end_ms for fire in fate.fires):
        verdict.early.append(f"delivered while it was paused: {about}")
