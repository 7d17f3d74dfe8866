"""The demo judges itself: it must see every way of going wrong."""

from datetime import UTC, datetime

import pytest
from punctual_worker.local.demo import Seen, demo_steps, judge

GOOD = {"at once [x]": [4], "in three seconds [x]": [2], "replacement [x]": [0]}


def test_all_well() -> None:
    assert judge("x", Seen(dict(GOOD), ["invalid-deliver-to"])) == []


@pytest.mark.parametrize(
    ("delivered", "rejected", "fault"),
    [
        ({**GOOD, "at once [x]": [4, 9]}, ["invalid-deliver-to"], "«at once [x]» arrived 2 times"),
        ({**GOOD, "cancelled [x]": [1]}, ["invalid-deliver-to"], "«cancelled [x]» arrived"),
        ({**GOOD, "at once [x]": [-3]}, ["invalid-deliver-to"], "3 ms too early"),
        ({}, ["invalid-deliver-to"], "«replacement [x]» did not arrive"),
        (GOOD, [], "the bad request was answered with nothing"),
        (GOOD, ["too-large"], "the bad request was answered with ['too-large']"),
    ],
)
def test_each_fault_is_seen(
    delivered: dict[str, list[int]], rejected: list[str], fault: str
) -> None:
    assert any(fault in found for found in judge("x", Seen(delivered, rejected)))


def test_all_requests_of_a_run_share_a_key_so_that_their_order_counts() -> None:
    assert {step.request.key for step in demo_steps("x", datetime.now(UTC))} == {b"x"}
