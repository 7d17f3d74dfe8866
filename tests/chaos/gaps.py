"""How long users had to wait after each kind of fault. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from chaos.fates import Fate
from chaos.load import Request
from chaos.world import Fault


class Wait(NamedTuple):
    """From when a message could have been delivered to when it was."""

    from_ms: int
    to_ms: int


class Gap(NamedTuple):
    """The longest of each, in milliseconds."""

    silence_ms: int
    """Nothing at all was delivered although something was due."""
    lateness_ms: int
    """A single message was late by this."""


def waits_of(requests: Iterable[Request], fates: dict[str, Fate], *, flaky: str) -> list[Wait]:
    """Waits of all that was delivered to destinations that were there all the time."""
    return sorted(
        Wait(max(request.due_ms, request.at_ms), fates[request.source].delivered_ms[0])
        for request in requests
        if request.destination != flaky
        and not request.is_of_a_story  # those wait because they are told to
        and request.source in fates
        and fates[request.source].delivered_ms
    )


def gaps_by_kind(faults: list[Fault], waits: list[Wait]) -> dict[str, Gap]:
    """Only of faults that were alone: whatever ends before the next one begins is theirs."""
    silences = _silences(waits)
    gaps: dict[str, Gap] = defaultdict(lambda: Gap(0, 0))
    for index, fault in enumerate(faults):
        if not fault.alone:
            continue
        until = faults[index + 1].began_ms if index + 1 < len(faults) else 1 << 62
        after = [w for w in waits if fault.began_ms <= w.to_ms < until]
        silent = [s for s in silences if fault.began_ms <= s.to_ms < until]
        known = gaps[fault.kind]
        gaps[fault.kind] = Gap(
            max([known.silence_ms, *(s.to_ms - s.from_ms for s in silent)]),
            max([known.lateness_ms, *(w.to_ms - w.from_ms for w in after)]),
        )
    return dict(gaps)


def _silences(waits: list[Wait]) -> list[Wait]:
    """Between one delivery and the next: the part in which something was already due."""
    by_end = sorted(waits, key=lambda wait: wait.to_ms)
    earliest_due: list[int] = []
    smallest = 1 << 62
    for wait in reversed(by_end):  # the earliest due among all that is delivered from here on
        smallest = min(smallest, wait.from_ms)
        earliest_due.append(smallest)
    earliest_due.reverse()
    silences, before = [], 0
    for wait, due in zip(by_end, earliest_due, strict=True):
        begin = max(before, due)
        if begin < wait.to_ms:
            silences.append(Wait(begin, wait.to_ms))
        before = wait.to_ms
    return silences
