"""`punctual job audit` as a user runs it, and what it says as data."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple


class Audited(NamedTuple):
    status: int
    report: dict[str, Any]

    def problems_of(self, source: str) -> list[str]:
        """What is wrong with one request; empty if nothing."""
        return [
            problem
            for finding in self.report["findings"]
            if finding["source"] == source
            for problem in finding["problems"]
        ]


def run_audit(
    bootstrap_servers: str, app_id: str, folder: Path, *flags: str, seconds: float = 240
) -> Audited:
    """Fails with what it printed if it could not be run."""
    command = [sys.executable, "-m", "punctual_worker.cli", "job", "audit", "--json"]
    where = ["--bootstrap-servers", bootstrap_servers, "--app-id", app_id]
    done = subprocess.run(
        [*command, *where, "--data-dir", str(folder), *flags],
        env={name: value for name, value in os.environ.items() if "PUNCTUAL_APP" not in name},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode in (0, 1), f"{done.stdout}\n{done.stderr}"
    return Audited(done.returncode, json.loads(done.stdout))
