"""`punctual job NAME`: batch jobs on Spark."""

import importlib
import sys

import click

from punctual_worker.commands.options import CONNECTION, with_settings
from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings


@click.group()
def job() -> None:
    """Run a batch job (Spark)."""


@job.command()
@with_settings(*CONNECTION, "data_dir", "trace_headers")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--most", type=click.IntRange(min=0), default=50, help="Problems to list. [50]")
def audit(settings: Settings, as_json: bool, most: int) -> None:
    """Say what became of every request, and list those nobody can account for.

    Exit status 0 if all are accounted for, 1 if there are problems, 2 if it could not be run.
    """
    try:
        # By name, so that Spark is loaded for nobody else.
        run = importlib.import_module("punctual_worker.jobs.main").run_audit
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("punctual_worker"):
            raise
        raise PunctualError(
            f"The Python package {error.name} is missing: pip install 'punctual[worker]'."
        ) from error
    sys.exit(run(settings, as_json=as_json, most=most))
