"""From a job's name to its run, its output and its exit status."""

import sys

from punctual_worker.jobs import reports
from punctual_worker.jobs.audit import audit
from punctual_worker.settings import Settings


def run_audit(settings: Settings, *, as_json: bool, most: int) -> int:
    """Print the report; 0 if every request is accounted for, else 1."""
    report = audit(settings, most_findings=most)
    text = reports.as_json(report) if as_json else reports.as_text(report)
    sys.stdout.write(text + "\n")
    return 0 if report.ok else 1
