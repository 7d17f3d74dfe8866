"""How fast Punctual is on this machine, every figure beside what the machine can do at best.

`make bench` starts everything, measures, prints a table, and writes bench/results.json and the
pictures in docs/images. `QUICK=1` takes a few minutes; `ONLY=burst,lateness` takes some of the
figures, and keeps the others that are in the file. Fails if a message is lost, repeated or early.
Measure on a quiet machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.extend(str(Path(__file__).parent.parent / folder) for folder in ("", "tests"))

from bench import bursts, intake, lateness, pending, pictures, report, takeover
from bench.report import Report
from bench.scale import FULL, QUICK, TINY, Scale
from bench.stack import Stack

ROOT: Final = Path(__file__).parent.parent
Family = Callable[[Stack, Scale, Report], None]


def _console(stack: Stack, scale: Scale, report: Report) -> None:
    """The console's view has a bench of its own, which prints its figures."""
    rows = str(max(scale.pending) // 10)
    program = Path(__file__).with_name("console_view.py")
    subprocess.run([sys.executable, str(program), rows, "--direct"], check=True)


FAMILIES: Final[dict[str, Family]] = {
    "intake": intake.measure,
    "journey": intake.measure_journey,
    "burst": bursts.measure,
    "lateness": lateness.measure,
    "takeover": takeover.measure,
    "pending": pending.measure,  # late, because a broker with ten million records is a busy one
    "console": _console,
}
_NOT_IN_QUICK: Final = ("journey", "console")


def main() -> int:
    """The exit status: 1 if anything was not right."""
    given = _arguments()
    if given.markdown:
        print(report.as_markdown(json.loads(given.markdown.read_text())), end="")
        return 0
    if given.quick or given.tiny:
        scale = TINY if given.tiny else QUICK
        chosen = given.only or [name for name in FAMILIES if name not in _NOT_IN_QUICK]
    else:
        scale = FULL
        chosen = given.only or list(FAMILIES)
    _warn_if_busy()
    results = Report()
    failures = _measure(chosen, scale, results, given.folder)
    report.save(given.out, results.figures, scale=scale.name, merge=bool(given.only))
    written = [given.out, *pictures.save(given.pictures, results.curves)]
    print(f"\nwritten: {', '.join(map(str, written))}")
    missed = [row.figure for row in results.figures if row.met is False]
    print(f"{len(results.figures)} figures, {len(missed)} short of their aim")
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="smaller counts: a few minutes")
    size.add_argument("--tiny", action="store_true", help="to try the bench itself: no figures")
    parser.add_argument("--only", type=_families, help=f"some of {','.join(FAMILIES)}")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results.json")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--folder", type=Path, help="for broker and stores; else a temporary one")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="print results as a table")
    return parser.parse_args()


def _families(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in FAMILIES]:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown)} is given: want some of {', '.join(FAMILIES)}"
        )
    return names


def _measure(chosen: list[str], scale: Scale, results: Report, folder: Path | None) -> list[str]:
    """What went wrong. One family's failure does not cost the figures of the others."""
    failures = []
    with tempfile.TemporaryDirectory(dir=folder) as data, Stack(Path(data)) as stack:
        for name in chosen:
            began = time.monotonic()
            print(f"-- {name}", flush=True)
            try:
                FAMILIES[name](stack, scale, results)
            except Exception as error:  # whatever it is, it is told, and the status says so
                traceback.print_exc()
                failures.append(f"{name}: {type(error).__name__}: {str(error)[:2000]}")
            print(f"   took {time.monotonic() - began:.0f} s", flush=True)
    return failures


def _warn_if_busy() -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 4:
        print(f"this machine is busy (load {load:.1f}): the figures will say little")


if __name__ == "__main__":
    sys.exit(main())
