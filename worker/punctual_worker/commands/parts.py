"""`punctual intake`, `dispatcher` and `executor`: one part each, until SIGTERM."""

import importlib
import sys

import click

from punctual_worker.commands.options import (
    CONNECTION,
    DISPATCHER,
    INTAKE,
    SERVING,
    with_settings,
)
from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings


@click.command()
@with_settings(*CONNECTION, *SERVING, *INTAKE)
def intake(settings: Settings) -> None:
    """Take requests in: validate, normalise, route (Spark)."""
    _run("punctual_worker.intake.main", settings)


@click.command()
@with_settings(*CONNECTION, *SERVING, *DISPATCHER)
def dispatcher(settings: Settings) -> None:
    """Deliver what is due; several share the work."""
    _run("punctual_worker.dispatch.main", settings)


@click.command(hidden=True)
def executor() -> None:
    """Run a Spark executor for an intake on Kubernetes, which starts it."""
    importlib.import_module("punctual_worker.intake.executor").run()


def _run(module: str, settings: Settings) -> None:
    """By name, so that neither part's libraries are loaded for the other."""
    try:
        run = importlib.import_module(module).run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("punctual_worker"):
            raise
        raise PunctualError(
            f"The Python package {error.name} is missing: pip install 'punctual[worker]'."
        ) from error
    sys.exit(run(settings))
