"""The figures of a run: printed as they come, kept as JSON, shown as a table in Markdown."""

import json
import os
import platform
import re
import subprocess
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import libversion
from punctual_worker.local.jars import jar_paths
from punctual_worker.local.java import find_java

_PACKAGES: Final = ("confluent-kafka", "pyspark", "rocksdict", "ormsgpack")
_DIGITS: Final = 4


@dataclass(frozen=True)
class Figure:
    """One row: a value beside its limit and its aim, where it has them."""

    figure: str
    value: float
    unit: str
    limit: float | None = None
    """What the machine can do without us, in the same unit, taken in the same run."""
    ratio: float | None = None
    aim: str | None = None
    met: bool | None = None


@dataclass
class Report:
    """Grows while the bench runs."""

    figures: list[Figure] = field(default_factory=list)
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    """Points of the pictures, by picture and line."""

    def add(
        self,
        figure: str,
        value: float,
        unit: str,
        *,
        limit: float | None = None,
        aim: str | None = None,
        met: bool | None = None,
    ) -> None:
        """Keep a figure, and show it."""
        ratio = value / limit if limit else None
        row = Figure(figure, _round(value), unit, _round(limit), _round(ratio), aim, met)
        self.figures.append(row)
        print(as_line(row), flush=True)

    def curve(self, picture: str, line: str, points: list[tuple[float, float]]) -> None:
        """Keep the points of a line."""
        self.curves.setdefault(picture, {})[line] = points


def as_line(row: Figure) -> str:
    """One row of the printed table."""
    limit = "" if row.limit is None else f"limit {_number(row.limit)}, ratio {row.ratio}"
    aim = "" if row.aim is None else f"aim {row.aim}: {'met' if row.met else 'NOT met'}"
    return f"{row.figure:<68} {_number(row.value):>11} {row.unit:<13} {limit:<30} {aim}".rstrip()


def as_markdown(results: dict[str, Any]) -> str:
    """All figures of a results file, for docs/performance.md."""
    lines = [
        "| figure | value | its limit, in the same run | ratio | aim | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in (Figure(**one) for one in results["figures"]):
        limit = "" if row.limit is None else f"{_number(row.limit)} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:g}"
        met = {None: "", True: "yes", False: "**no**"}[row.met]
        value = f"{_number(row.value)} {row.unit}"
        lines.append(f"| {row.figure} | {value} | {limit} | {ratio} | {row.aim or ''} | {met} |")
    told = [
        ", ".join(f"{name} {what}" for name, what in results[part].items())
        for part in ("machine", "versions")
    ]
    return "\n".join([*lines, "", f"Machine: {told[0]}. Versions: {told[1]}.", ""])


def save(path: Path, figures: list[Figure], *, scale: str, merge: bool) -> None:
    """Write the results; with `merge`, into what is there: figures of the same name give way."""
    rows = [asdict(figure) for figure in figures]
    if merge and path.exists():
        before = json.loads(path.read_text())
        new = {row["figure"] for row in rows}
        rows = [row for row in before.get("figures", []) if row["figure"] not in new] + rows
    results = {"figures": rows, "machine": _machine(scale), "versions": _versions()}
    path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def _machine(scale: str) -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "run": scale,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_at_end": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), "")


def _versions() -> dict[str, str]:
    return {
        "punctual": _commit(),
        "python": platform.python_version(),
        "java": _java(),
        "kafka": _kafka(),
        "librdkafka": libversion()[0],
        **{name: metadata.version(name) for name in _PACKAGES},
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or metadata.version("punctual")


def _java() -> str:
    done = subprocess.run(
        [str(find_java()), "-version"], capture_output=True, text=True, check=False
    )
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return found[1] if found else ""


def _kafka() -> str:
    names = (path.name for path in jar_paths("broker"))
    return next((name[len("kafka_2.13-") : -4] for name in names if "kafka_2.13-" in name), "")


def _round(value: float | None) -> float | None:
    """Four digits: no figure of a machine has more to say."""
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
