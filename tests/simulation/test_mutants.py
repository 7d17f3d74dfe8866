"""Every deliberate mistake is caught, by what users would see of it."""

import pytest
from simulation.explore import first_failure, tell_story
from simulation.mutants import MUTANTS

_SEEDS = 3_000


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


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.emphasis])
def test_the_emphasis_alone_breaks_nothing(name: str) -> None:
    failure = first_failure(range(150), emphasis=MUTANTS[name].emphasis)
    assert failure is None, failure
