"""The protocol holds in every world that the explorer makes up. Deterministic by seed."""

import pytest
from simulation.explore import first_failure, tell_story
from simulation.world import World

_SEEDS = 2_400
_CHUNK = 200


@pytest.mark.parametrize("start", range(0, _SEEDS, _CHUNK))
def test_nothing_is_lost_nothing_comes_twice_nothing_comes_early(start: int) -> None:
    failure = first_failure(range(start, start + _CHUNK))
    assert failure is None, tell_story(failure.seed)


def test_a_seed_tells_the_same_story_every_time() -> None:
    assert tell_story(7) == tell_story(7)


def test_the_worlds_are_eventful_enough_to_prove_anything() -> None:
    """Guards against a simulation that is green because nothing happens in it."""
    told: list[str] = []
    delivered = fires = 0
    fates: set[tuple[str, str]] = set()
    left_out: set[str] = set()
    for seed in range(120):
        world = World(seed, story=told)
        world.run()
        delivered += world.oracle.delivered
        fires += world.oracle.fires
        for ledger in world.oracle.ledgers:
            for fate in ledger.fates.values():
                if fate.series is not None and fate.request.schedule_id not in ledger.forgiven:
                    fates.add((fate.request.misfire, fate.status.value))
                    left_out |= {fate.request.misfire} if fate.series.left_out else set()
    story = "\n".join(told)
    assert delivered - fires > 500
    assert fires > 1_000
    assert left_out == {"once", "skip"}
    for misfire in ("once", "all", "skip"):
        for status in ("pending", "cancelled", "replaced", "rejected"):
            assert (misfire, status) in fates, f"never {status}: {misfire}"
    for event in (
        "compacts",
        "is killed",
        "finds an old disk",
        "loses its disk",
        "generation",
        "is fenced",
        "fences",
        "time is up",
        "refuses",
        "re-arms",
        "request-id-in-use",
        "delivery-failed",
        "unknown-destination",
        "expired",
        "starts again from",
        "forgets the group",
        "nothing runs for 2 days",
    ):
        assert event in story, f"never happens: {event}"
