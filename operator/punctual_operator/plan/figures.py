"""From the workers' metrics to the figures in a Scheduler's status."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

_WINDOW_SECONDS: Final = 600.0
LOST: Final = "checkpoint-lost"


@dataclass(frozen=True)
class Sample:
    """What one worker tells."""

    pending: int = 0
    overdue: int = 0
    next_due: float = 0.0
    """Seconds since 1970; 0 for none."""
    lag: int = 0
    rejections: Mapping[str, int] = field(default_factory=dict)
    lateness: Mapping[float, int] = field(default_factory=dict)
    """Deliveries so far by upper bound, cumulative."""
    lost_partitions: frozenset[str] = frozenset()


def parse_sample(text: str) -> Sample:
    """From the text of `/metrics`; what is not known is left out."""
    totals: Counter[str] = Counter()
    next_due = 0.0
    rejections: Counter[str] = Counter()
    lateness: dict[float, int] = {}
    lost: set[str] = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            match sample.name:
                case "punctual_pending" | "punctual_overdue" | "punctual_intake_lag_records":
                    totals[sample.name] += int(sample.value)
                case "punctual_next_due_timestamp_seconds":
                    next_due = sample.value
                case "punctual_rejections_total":
                    rejections[sample.labels["code"]] += int(sample.value)
                case "punctual_lateness_seconds_bucket":
                    lateness[float(sample.labels["le"])] = int(sample.value)
                case "punctual_dispatcher_state":
                    if sample.labels["state"] == LOST and sample.value:
                        lost.add(sample.labels["partition"])
    return Sample(
        pending=totals["punctual_pending"],
        overdue=totals["punctual_overdue"],
        next_due=next_due,
        lag=totals["punctual_intake_lag_records"],
        rejections=+rejections,
        lateness=lateness,
        lost_partitions=frozenset(lost),
    )


class LatenessWindow:
    """The workers count from their start; what matters is how late the latest were."""

    def __init__(self) -> None:
        self._history: list[tuple[float, dict[str, Mapping[float, int]]]] = []

    def p99(self, now: float, samples: Mapping[str, Sample]) -> float | None:
        """In seconds, over the last ten minutes or so; None if nothing was delivered then."""
        current = {pod: sample.lateness for pod, sample in samples.items()}
        base = self._history[0][1] if self._history else {}
        self._history.append((now, current))
        while len(self._history) > 1 and self._history[1][0] <= now - _WINDOW_SECONDS:
            self._history.pop(0)
        counts: Counter[float] = Counter()
        for pod, buckets in current.items():
            before = base.get(pod, {})
            if before.get(math.inf, 0) > buckets.get(math.inf, 0):
                before = {}  # started again
            for bound, count in buckets.items():
                counts[bound] += count - before.get(bound, 0)
        return _percentile(counts, 0.99)


def _percentile(cumulative: Mapping[float, int], share: float) -> float | None:
    total = cumulative.get(math.inf, 0)
    if total <= 0:
        return None
    finite = [bound for bound in sorted(cumulative) if bound != math.inf]
    for bound in finite:
        if cumulative[bound] >= share * total:
            return bound
    return finite[-1] if finite else None


def build_figures(
    told: Mapping[str, Any],
    *,
    dispatchers: Mapping[str, Sample],
    intake: Mapping[str, Sample],
    lateness_p99: float | None,
) -> dict[str, Any]:
    """Fields of the status; where nobody could be asked, what the status told last stays."""
    figures = {name: told[name] for name in FIGURES if name in told}
    if dispatchers:
        due = [sample.next_due for sample in dispatchers.values() if sample.next_due > 0]
        figures["pending"] = sum(sample.pending for sample in dispatchers.values())
        figures["overdue"] = sum(sample.overdue for sample in dispatchers.values())
        figures.pop("nextDueTime", None)
        if due:
            moment = datetime.fromtimestamp(math.floor(min(due)), UTC)
            figures["nextDueTime"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        if lateness_p99 is not None:
            figures["latenessP99Milliseconds"] = round(lateness_p99 * 1000)
    if intake:
        figures["intakeLagRecords"] = sum(sample.lag for sample in intake.values())
    if dispatchers or intake:
        rejections: Counter[str] = Counter()
        for sample in (*dispatchers.values(), *intake.values()):
            rejections.update(sample.rejections)
        figures["rejections"] = [
            {"code": code, "count": count} for code, count in sorted(rejections.items()) if count
        ]
    return figures


FIGURES: Final = (
    "pending",
    "overdue",
    "nextDueTime",
    "latenessP99Milliseconds",
    "intakeLagRecords",
    "rejections",
)
