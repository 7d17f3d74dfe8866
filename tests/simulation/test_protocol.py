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
    delivered = 0
    for seed in range(120):
        world = World(seed, story=told)
        world.run()
        delivered += world.oracle.delivered
    story = "\n".join(told)
    assert delivered > 500
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
        "expired",
        "starts again from",
        "forgets the group",
        "nothing runs for 2 days",
    ):
        assert event in story, f"never happens: {event}"
