"""An audit's result as a person or a program reads it. Pure."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from punctual_worker.contract.times import format_ms
from punctual_worker.jobs.audit import Finding, Report


def as_text(report: Report) -> str:
    """Classes with their counts, then what is wrong."""
    return "\n".join(_lines(report))


def as_json(report: Report) -> str:
    """Everything, for programs."""
    return json.dumps({"ok": report.ok, **asdict(report)}, indent=2)


def _lines(report: Report) -> Iterator[str]:
    first, last = (_moment(ms) for ms in report.window_ms)
    yield f"{report.app_id}: {report.requests:,} requests, {first} to {last}"
    yield f"the actions log is complete since {format_ms(report.complete_since_ms)}"
    yield ""
    width = max((len(fate) for fate in report.fates), default=0)
    for fate, count in report.fates.items():
        yield f"  {fate:<{width}}  {count:>12,}"
    yield ""
    for note in report.notes:
        yield f"note: {note}"
    if report.ok:
        yield "every request is accounted for"
        return
    for problem, count in sorted(report.problems.items()):
        yield f"PROBLEM: {count:,} {problem}"
    for finding in report.findings:
        yield f"  {_sentence(finding)}"
    listed, total = len(report.findings), sum(report.problems.values())
    if listed < total:
        yield f"  ... the first {listed}; --most shows more"


def _sentence(finding: Finding) -> str:
    parts = [f"{finding.source}: {', '.join(finding.problems)}"]
    if finding.id:
        parts.append(f"id {finding.id!r}")
    if finding.destination:
        parts.append(f"to {finding.destination}")
    if finding.wanted_ms is not None:
        parts.append(f"for {_moment(finding.wanted_ms)}")
    if finding.places:
        parts.append(f"delivered as {', '.join(finding.places)}")
    return "; ".join(parts)


def _moment(ms: int | None) -> str:
    return "-" if ms is None else format_ms(ms)
