"""The model that judges a chaos run must itself find what is wrong."""

from collections import Counter

import pytest
from chaos.accounting import explains, judge
from chaos.fates import Fate
from chaos.load import Request

FLAKY = "flaky"


def request(offset: int, verb: str = "ADD", request_id: str = "id", value: bytes = b"") -> Request:
    value = value or b"%d" % offset
    return Request(f"r/0/{offset}", 0, offset, 0, verb, request_id, 1_000, "d", value)


def delivered(*at_ms: int) -> Fate:
    return Fate(list(at_ms), events=Counter({"Delivered": len(at_ms)}))


def told(event: str) -> Fate:
    return Fate(events=Counter({event: 1}))


IN_USE = Fate(codes={"request-id-in-use"})
ADD, OTHER = request(0), request(1)
REPLACE, CANCEL = request(1, "REPLACE"), request(1, "CANCEL")
RETRY = request(1, value=b"0")


@pytest.mark.parametrize(
    ("ordered", "fates"),
    [
        ([ADD], [delivered(1_000)]),
        ([ADD, OTHER], [delivered(1_000), IN_USE]),
        ([ADD, OTHER], [delivered(1_000), delivered(2_000)]),
        ([ADD, REPLACE], [told("Replaced"), delivered(1_000)]),
        ([ADD, REPLACE], [delivered(1_000), delivered(2_000)]),
        ([ADD, CANCEL], [told("Cancelled"), Fate()]),
        ([ADD, CANCEL], [delivered(1_000), told("CancelMissed")]),
        ([ADD, RETRY], [delivered(1_000), told("Unchanged")]),
        ([ADD, RETRY], [delivered(1_000), delivered(1_500)]),
    ],
)
def test_what_the_contract_allows_is_accepted(ordered: list[Request], fates: list[Fate]) -> None:
    by_source = {r.source: fate for r, fate in zip(ordered, fates, strict=True)}
    assert judge(ordered, by_source, flaky=FLAKY).ok


@pytest.mark.parametrize(
    ("ordered", "fates", "fault"),
    [
        ([ADD], [Fate()], "lost"),
        ([ADD], [delivered(1_000, 1_000)], "twice"),
        ([ADD], [delivered(999)], "early"),
        ([ADD, REPLACE], [delivered(1_000), Fate()], "lost"),
        ([ADD, REPLACE], [told("Replaced"), Fate()], "lost"),
        ([ADD, OTHER], [told("Replaced"), delivered(1_000)], "wrong"),
        ([ADD, OTHER], [Fate(codes={"request-id-in-use"}), delivered(1_000)], "wrong"),
        ([ADD, CANCEL], [told("Cancelled"), delivered(1_000)], "wrong"),
        ([ADD], [Fate([1_000], codes={"delivery-failed"})], "wrong"),
        ([ADD], [Fate([1_000], events=Counter({"Cancelled": 1}))], "wrong"),
    ],
)
def test_what_it_does_not_allow_is_found(
    ordered: list[Request], fates: list[Fate], fault: str
) -> None:
    by_source = {r.source: fate for r, fate in zip(ordered, fates, strict=True)}
    assert getattr(judge(ordered, by_source, flaky=FLAKY), fault)


def test_a_course_of_events_is_looked_for_among_several() -> None:
    ordered = [request(0), request(1, value=b"0"), request(2, "CANCEL"), request(3)]
    fates = [delivered(1_000), told("Cancelled"), Fate(), delivered(1_000)]
    assert explains(ordered, {f"r/0/{n}": fate for n, fate in enumerate(fates)}, FLAKY)
