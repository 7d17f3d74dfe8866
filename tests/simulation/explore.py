"""Explore seeds: `python tests/simulation/explore.py --seeds 1000000 --jobs 2`.

Replay one as a story: `python tests/simulation/explore.py --seed 123 --story`.
`--recurring 0.8` makes that share of the requests recurring ones, whatever the seed would have.
With `--mutant NAME` the protocol has that mistake in it; `--mutants` lists them.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulation.protocol import Protocol
from simulation.series import ViolationError
from simulation.world import World

CHUNK = 500
Emphasis = Mapping[str, float] | None


class Failure(NamedTuple):
    """A seed that broke a promise, and which; or one in which the code fell over."""

    seed: int
    promise: str
    crashed: bool = False
    """Not a verdict of the oracle, so never proof that a mistake was found."""


def try_seed(
    seed: int,
    protocol: Protocol | None = None,
    *,
    check_tables: bool = True,
    emphasis: Emphasis = None,
) -> Failure | None:
    """What goes wrong in this seed, if anything."""
    try:
        World(seed, protocol=protocol, check_tables=check_tables, emphasis=emphasis).run()
    except ViolationError as violation:
        return Failure(seed, str(violation))
    except Exception as error:
        return Failure(seed, f"{type(error).__name__}: {error}", crashed=True)
    return None


def first_failure(
    seeds: Iterable[int],
    protocol: Protocol | None = None,
    *,
    check_tables: bool = True,
    emphasis: Emphasis = None,
) -> Failure | None:
    """The first of these seeds in which something goes wrong."""
    failures = (
        try_seed(seed, protocol, check_tables=check_tables, emphasis=emphasis) for seed in seeds
    )
    return next((failure for failure in failures if failure is not None), None)


def tell_story(
    seed: int,
    protocol: Protocol | None = None,
    *,
    check_tables: bool = True,
    emphasis: Emphasis = None,
) -> str:
    """What happened in a seed, step by step, and which promise broke."""
    story: list[str] = []
    world = World(
        seed, protocol=protocol, story=story, check_tables=check_tables, emphasis=emphasis
    )
    verdict = "every promise was kept"
    try:
        world.run()
    except ViolationError as violation:
        verdict = f"BROKEN: {violation}"
    except Exception as error:
        verdict = f"BROKEN: {type(error).__name__}: {error}"
    head = f"seed {seed}: {verdict}"
    return "\n".join([head, *story, "the log:", *world.log_lines(), head])


def _failures(
    start: int, *, stop: int, mutant: str | None, recurring: float | None
) -> list[Failure]:
    protocol, check_tables, emphasis = _setting(mutant, recurring)
    chunk = range(start, min(start + CHUNK, stop))
    tried = (
        try_seed(seed, protocol, check_tables=check_tables, emphasis=emphasis) for seed in chunk
    )
    return [failure for failure in tried if failure is not None]


def _setting(mutant: str | None, recurring: float | None) -> tuple[Protocol | None, bool, Emphasis]:
    """Protocol, whether tables are checked, emphasis: for a mutant as its test has them."""
    if mutant is None:
        return None, True, None if recurring is None else {"recurring": recurring}
    from simulation.mutants import MUTANTS

    return MUTANTS[mutant].protocol, False, MUTANTS[mutant].emphasis


def _explore(
    first: int, count: int, jobs: int, *, mutant: str | None, recurring: float | None
) -> int:
    began, failures, done = time.monotonic(), 0, 0
    stop = first + count
    with ProcessPoolExecutor(jobs) as pool:
        work = partial(_failures, stop=stop, mutant=mutant, recurring=recurring)
        for found in pool.map(work, range(first, stop, CHUNK)):
            done = min(done + CHUNK, count)
            for failure in found:
                failures += 1
                print(f"\rseed {failure.seed}: {failure.promise}")
            rate = done / (time.monotonic() - began)
            print(f"\r{done} seeds, {failures} broken, {rate:.0f}/s", end="", flush=True)
    print()
    return 1 if failures else 0


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--story", action="store_true", help="tell what happens in --seed")
    parser.add_argument("--recurring", type=float, help="share of recurring schedules")
    parser.add_argument("--mutant", help="with this deliberate mistake")
    parser.add_argument("--mutants", action="store_true", help="list the deliberate mistakes")
    options = parser.parse_args()
    if options.mutants:
        from simulation.mutants import MUTANTS

        for name, mutant in MUTANTS.items():
            print(f"{name:<45} {mutant.mistake}")
        return 0
    if options.seed is None:
        return _explore(
            options.first,
            options.seeds,
            options.jobs,
            mutant=options.mutant,
            recurring=options.recurring,
        )
    protocol, check_tables, emphasis = _setting(options.mutant, options.recurring)
    story = tell_story(options.seed, protocol, check_tables=check_tables, emphasis=emphasis)
    print(story if options.story else story.partition("\n")[0])
    return 1 if "BROKEN" in story.partition("\n")[0] else 0


if __name__ == "__main__":
    sys.exit(main())
