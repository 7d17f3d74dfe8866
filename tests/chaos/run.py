"""Faults on real processes: `python tests/chaos/run.py --minutes 10 --seed 7`.

A broker, intake and three dispatchers under load are hurt in every way a machine can be, by a
seeded schedule. Then every message is accounted for, by a model of its own and by the audit job.
The folder is kept when something is wrong: logs of all parts are in it.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from chaos.accounting import Ledger, judge
from chaos.fates import Fate, Verdict
from chaos.gaps import gaps_by_kind, waits_of
from chaos.load import Load, Request
from chaos.world import APP, Fault, World
from support.audit import Audited, run_audit
from support.kafka import consume_committed

QUIET_SECONDS = 150


@dataclass(frozen=True)
class Result:
    """What a run has shown."""

    seed: int
    seconds: float
    faults: list[Fault]
    requests: list[Request]
    delivered: int
    stories: Counter[str]
    """What came of recurring and paused schedules."""
    compacted: int
    verdict: Verdict
    audited: Audited
    gaps: dict[str, tuple[int, int]]
    ended_by_themselves: list[str]

    @property
    def ok(self) -> bool:
        return self.verdict.ok and self.audited.status == 0


def run(folder: Path, *, seed: int, seconds: float) -> Result:
    """Every kind of fault at least once, then more of them until the time is over."""
    world = World(folder, seed)
    try:
        world.start()
        load = Load(
            world.broker.bootstrap_servers,
            world.topics.requests,
            world.destinations,
            world.flaky,
            seed,
        )
        load.start()
        began = time.monotonic()
        try:
            schedule = random.Random(f"schedule {seed}")
            _hurt(world, load, schedule, list(world.kinds), until=began + seconds)
        finally:
            load.stop()
        return _account(world, load.requests, seed, time.monotonic() - began)
    finally:
        world.stop()


def _hurt(
    world: World, load: Load, schedule: random.Random, kinds: list[str], *, until: float
) -> None:
    """Round after round; in every other one each fault is mended before the next."""
    short = time.monotonic() >= until
    alone = not short
    world.pause(3, 4)  # something to lose
    while True:
        schedule.shuffle(kinds)
        for kind in kinds:
            fault = world.hurt(kind, alone=alone)
            print(f"  {kind}: {(fault.ended_ms - fault.began_ms) / 1000:.1f} s", flush=True)
            if alone:
                world.wait_mended(load.probe)
            world.pause(0.5, 5)
            world.tend()
        if time.monotonic() > until:
            return
        if not alone:
            world.wait_mended(load.probe)
        alone = not alone


def _account(world: World, requests: list[Request], seed: int, seconds: float) -> Result:
    servers = world.broker.bootstrap_servers
    world.tend()
    ledger = Ledger(
        servers,
        deliveries=[*world.destinations, world.flaky, world.probed],
        rejections=world.topics.rejections,
        history=world.topics.history,
    )
    for record in world.read_before_deletion:
        source = record.header("x-scheduler-source") or b""
        ledger.add_delivered(source.decode(), record.timestamp_ms)
    ledger.wait(requests, flaky=world.flaky, timeout=QUIET_SECONDS)
    ledger.close()
    waits = waits_of(requests, ledger.fates, flaky=world.flaky)
    return Result(
        seed=seed,
        seconds=seconds,
        faults=world.faults,
        requests=requests,
        delivered=sum(len(fate.delivered_ms) for fate in ledger.fates.values()),
        stories=_stories(requests, ledger.fates),
        compacted=_compacted(servers, world.topics.actions),
        verdict=judge(requests, ledger.fates, flaky=world.flaky),
        audited=run_audit(servers, APP, world.folder / "audit"),
        gaps={kind: tuple(gap) for kind, gap in gaps_by_kind(world.faults, waits).items()},
        ended_by_themselves=world.ended_by_themselves,
    )


def _stories(requests: list[Request], fates: dict[str, Fate]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for request in requests:
        if request.is_of_a_story and request.verb == "ADD":
            fate = fates.get(request.source, Fate())
            kind = "recurring" if request.every_ms else "single"
            counts[kind] += 1
            counts[f"{kind} fires"] += len(fate.fires)
            counts[f"{kind} paused"] += len(fate.of("Paused"))
    return counts


def _compacted(servers: str, topic: str) -> int:
    """How many offsets of the actions log have no record any more, markers of transactions too."""
    last: dict[int, int] = {}
    records = consume_committed(servers, topic)
    for record in records:
        last[record.partition] = max(last.get(record.partition, 0), record.offset + 1)
    return sum(last.values()) - len(records)


def table(result: Result) -> str:
    """The result as people read it."""
    verbs = Counter(request.verb for request in result.requests)
    counts = Counter(fault.kind for fault in result.faults)
    mixed = ", ".join(f"{count} {verb}" for verb, count in sorted(verbs.items()))
    lines = [
        f"seed {result.seed}, {result.seconds:.0f} s under load",
        f"{len(result.requests)} requests ({mixed}), {result.delivered} delivered,"
        f" {result.compacted} records compacted away",
        "{recurring} recurring, {recurring paused} of them paused, with {recurring fires} fires;"
        " of {single} others {single paused} were paused in time".format_map(result.stories),
        "",
        f"{'fault':<40}{'times':>6}{'longest gap':>14}{'most late':>14}",
    ]
    for kind, count in counts.items():
        times = "".join(f"{ms / 1000:>12.2f} s" for ms in result.gaps.get(kind, ()))
        lines.append(f"{kind:<40}{count:>6}{times or '-':>28}")
    verdict = result.verdict
    lines += [
        "",
        f"lost {len(verdict.lost)}, twice {len(verdict.twice)}, early {len(verdict.early)},"
        f" otherwise wrong {len(verdict.wrong)}",
        f"audit: status {result.audited.status}, {result.audited.report['fates']}",
        *(f"note: {note}" for note in result.audited.report["notes"]),
        *(f"ended by itself: {text}" for text in result.ended_by_themselves),
        *(f"LOST {text}" for text in verdict.lost[:3]),
        *(f"TWICE {text}" for text in verdict.twice[:3]),
        *(f"EARLY {text}" for text in verdict.early[:3]),
        *(f"WRONG {text}" for text in verdict.wrong[:3]),
        *(f"AUDIT {finding}" for finding in result.audited.report["findings"][:10]),
    ]
    return "\n".join(lines)


def main() -> int:
    """0 if nothing was lost, nothing came twice, nothing early."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="punctual-chaos-"))
    print(f"chaos: seed {given.seed}, {given.minutes} minutes, in {folder}", flush=True)
    result = run(folder, seed=given.seed, seconds=given.minutes * 60)
    print(table(result))
    if result.ok:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
