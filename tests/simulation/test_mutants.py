"""Every deliberate mistake is caught, by what users would see of it."""

from collections.abc import Mapping

import pytest
from simulation.explore import first_failure, tell_story
from simulation.mutants import MUTANTS

_SEEDS = 3_000
_EMPHASES = {tuple(one.emphasis.items()): one.emphasis for one in MUTANTS.values() if one.emphasis}


@pytest.mark.parametrize("name", MUTANTS)
def test_mistake_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    failure = first_failure(
        range(_SEEDS), mutant.protocol, check_tables=False, emphasis=mutant.emphasis
    )
    assert failure is not None, f"not caught in {_SEEDS} seeds: {mutant.mistake}"
    assert not failure.crashed, failure
    story = tell_story(failure.seed, mutant.protocol, check_tables=False, emphasis=mutant.emphasis)
    print(f"{name}: {story.partition(chr(10))[0]}")


@pytest.mark.parametrize("emphasis", _EMPHASES.values(), ids=" ".join)
def test_the_emphasis_alone_breaks_nothing(emphasis: Mapping[str, float]) -> None:
    failure = first_failure(range(150), emphasis=emphasis)
    assert failure is None, failure
