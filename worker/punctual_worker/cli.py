"""The program `punctual`. Errors that a person can mend are one sentence, without a traceback."""

from typing import Any

import click

from punctual_worker.commands.client import cancel, pause, replace, resume, schedule
from punctual_worker.commands.console import console
from punctual_worker.commands.jobs import job
from punctual_worker.commands.listing import completion, list_pending, show
from punctual_worker.commands.local import broker, demo, up
from punctual_worker.commands.parts import dispatcher, executor, intake
from punctual_worker.commands.topics import topics
from punctual_worker.commands.watch import watch
from punctual_worker.errors import PunctualError
from punctual_worker.settings import SettingsError


class _Failure(click.ClickException):
    exit_code = 2


class _Program(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; say what is wrong in a sentence."""
        try:
            return super().invoke(ctx)
        except (SettingsError, PunctualError) as error:
            raise _Failure(str(error)) from error


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="punctual")
def main() -> None:
    """Deliver Kafka records at a chosen time.

    Settings are flags, else PUNCTUAL_* variables (PUNCTUAL_APP_ID for --app-id), else entries of
    the --config file. Kafka client properties: PUNCTUAL_KAFKA_SASL_USERNAME for sasl.username.
    """


for command in (
    up,
    demo,
    broker,
    topics,
    intake,
    dispatcher,
    executor,
    schedule,
    replace,
    cancel,
    pause,
    resume,
    watch,
    job,
):
    main.add_command(command)

for command in (console, list_pending, show, completion):
    main.add_command(command)

if __name__ == "__main__":
    main()
