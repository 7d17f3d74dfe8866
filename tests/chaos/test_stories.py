"""The model that judges recurring and paused schedules must itself find what is wrong."""

from collections import Counter

import pytest
from chaos.accounting import judge
from chaos.fates import Fate, Fire, Told
from chaos.load import Request

EVERY_MS = 1_000
BEGAN_MS = 10_400
"""So the first fire is at 11,000."""


def request(offset: int, verb: str, at_ms: int, *, due_ms: int = 0, every_ms: int = 0) -> Request:
    source = f"r/0/{offset}"
    return Request(source, 0, offset, at_ms, verb, "story-1", due_ms, "d", b"", every_ms)


def fate(fires: list[tuple[int, int]], *told: tuple[str, int, int]) -> Fate:
    return Fate(
        [at_ms for _, at_ms in fires],
        events=Counter(event for event, _, _ in told),
        fires=[Fire(*fire) for fire in fires],
        told=[Told(*one) for one in told],
    )


RECURRING = [
    request(0, "ADD", BEGAN_MS, every_ms=EVERY_MS),
    request(1, "CANCEL", 13_500),
]
STEERED = [
    request(0, "ADD", BEGAN_MS, every_ms=EVERY_MS),
    request(1, "PAUSE", 11_500),
    request(2, "RESUME", 12_500),
    request(3, "CANCEL", 13_500),
]
PAUSED = [
    request(0, "ADD", BEGAN_MS, due_ms=12_000),
    request(1, "PAUSE", 11_000),
    request(2, "RESUME", 13_000),
]
CANCELLED = ("Cancelled", 13_501, 14_000)
PAUSE, RESUME = ("Paused", 11_001, 12_000), ("Resumed", 13_001, 12_000)
ON_TIME = [(11_000, 11_000), (12_000, 12_003), (13_000, 13_001)]
CAUGHT_UP = [(11_000, 11_000), (12_000, 12_510), (13_000, 13_001)]
STOPPED = (("Paused", 11_501, 12_000), ("Resumed", 12_505, 12_000))


def verdict_of(story: list[Request], add: Fate, pause: Fate | None = None) -> dict[str, bool]:
    fates = {story[0].source: add, story[1].source: pause or Fate()}
    verdict = judge(story, fates, flaky="flaky")
    return {name: bool(found) for name, found in vars(verdict).items()}


@pytest.mark.parametrize(
    ("story", "add", "pause"),
    [
        (RECURRING, fate(ON_TIME, CANCELLED), None),
        # after an outage: all of them, late
        (RECURRING, fate([(n, 19_000) for n, _ in ON_TIME], ("Cancelled", 19_500, 14_000)), None),
        # the CANCEL was decided before the overdue fires
        (RECURRING, fate(ON_TIME[:1], ("Cancelled", 19_500, 12_000)), None),
        (RECURRING, fate([], ("Cancelled", 19_500, 11_000)), None),
        (STEERED, fate(CAUGHT_UP, *STOPPED, CANCELLED), None),
        (PAUSED, fate([(12_000, 13_002)], PAUSE, RESUME), None),
        # the PAUSE came too late
        (PAUSED, fate([(12_000, 12_000)]), fate([], ("PauseMissed", 12_500, 0))),
    ],
)
def test_what_the_contract_allows_is_accepted(
    story: list[Request], add: Fate, pause: Fate | None
) -> None:
    assert not any(verdict_of(story, add, pause).values())


@pytest.mark.parametrize(
    ("story", "add", "fault"),
    [
        (RECURRING, fate([*ON_TIME, (12_000, 12_900)], CANCELLED), "twice"),
        (RECURRING, fate([ON_TIME[0], ON_TIME[2]], CANCELLED), "lost"),
        (RECURRING, fate(ON_TIME[1:], CANCELLED), "lost"),
        (RECURRING, fate(ON_TIME[:2], CANCELLED), "lost"),
        (RECURRING, fate(ON_TIME), "lost"),
        (RECURRING, fate([(11_000, 10_999), *ON_TIME[1:]], CANCELLED), "early"),
        (RECURRING, fate([*ON_TIME, (14_000, 14_000)], CANCELLED), "wrong"),
        (RECURRING, fate([(10_000, 10_500), *ON_TIME], CANCELLED), "wrong"),
        (RECURRING, fate([*ON_TIME, (12_500, 12_500)], CANCELLED), "wrong"),
        (RECURRING, fate(ON_TIME, ("Cancelled", 13_501, 13_700)), "wrong"),
        (STEERED, fate([CAUGHT_UP[0], CAUGHT_UP[2]], *STOPPED, CANCELLED), "lost"),
        (STEERED, fate(ON_TIME, *STOPPED, CANCELLED), "early"),
        (STEERED, fate([*CAUGHT_UP, (12_000, 12_600)], *STOPPED, CANCELLED), "twice"),
        (PAUSED, fate([], PAUSE, RESUME), "lost"),
        (PAUSED, fate([(12_000, 13_002), (12_000, 13_003)], PAUSE, RESUME), "twice"),
        (PAUSED, fate([(12_000, 12_000)], PAUSE, RESUME), "early"),
        # told to be resumed before anybody asked for it
        (PAUSED, fate([(12_000, 12_600)], PAUSE, ("Resumed", 12_500, 12_000)), "early"),
        (PAUSED, fate([(12_000, 11_999)], PAUSE, RESUME), "early"),
        (PAUSED, fate([(12_000, 13_002)], PAUSE), "wrong"),
        # the PAUSE had no effect, and nothing was said of it
        (PAUSED, fate([(12_000, 12_000)]), "wrong"),
        (PAUSED, fate([(12_001, 13_002)], PAUSE, RESUME), "wrong"),
        (PAUSED, Fate(codes={"delivery-failed"}), "wrong"),
    ],
)
def test_what_it_does_not_allow_is_found(story: list[Request], add: Fate, fault: str) -> None:
    assert verdict_of(story, add)[fault]


def test_what_is_delivered_long_after_nothing_was_found_to_pause_is_found() -> None:
    missed = fate([], ("PauseMissed", 11_500, 0))
    assert verdict_of(PAUSED, fate([(12_000, 17_000)]), missed)["wrong"]


def test_a_delivery_of_what_only_steers_is_found() -> None:
    assert verdict_of(PAUSED, fate([(12_000, 13_002)], PAUSE, RESUME), fate([(1, 2)]))["wrong"]
