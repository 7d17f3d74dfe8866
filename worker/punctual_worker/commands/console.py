"""`punctual console`: the web page and the API, until SIGTERM."""

import importlib
import sys

import click

from punctual_worker.commands.options import CONNECTION, CONSOLE, SERVING, with_settings
from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings


@click.command()
@with_settings(*CONNECTION, *SERVING, *CONSOLE)
def console(settings: Settings) -> None:
    """See and steer what is pending: web page and REST API.

    A token to ask for comes from PUNCTUAL_CONSOLE_TOKEN or --console-token-file.
    """
    try:  # by name, so that other commands do not load its libraries
        run = importlib.import_module("punctual_worker.console.main").run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("punctual_worker"):
            raise
        raise PunctualError(
            f"The Python package {error.name} is missing: pip install 'punctual[worker]'."
        ) from error
    sys.exit(run(settings))
