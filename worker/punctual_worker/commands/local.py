"""`punctual broker`: what runs on this machine alone."""

import sys

import click

from punctual_worker.commands.options import name_value_pairs, with_settings
from punctual_worker.local.signals import stop_on_signals
from punctual_worker.settings import Settings

DEFAULT_BROKER_PORT = 9092


@click.command()
@with_settings("data_dir", kafka=False)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_BROKER_PORT,
    show_default=True,
    help="Port for clients; 0 takes a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address for clients.")
@click.option(
    "--heap-mb", type=click.IntRange(min=128), default=768, show_default=True, help="Java heap."
)
@click.option("--set", "extra", multiple=True, metavar="NAME=VALUE", help="Broker configuration.")
def broker(
    settings: Settings, *, port: int, host: str, heap_mb: int, extra: tuple[str, ...]
) -> None:
    """Run a real Kafka on this machine: one node, data kept under <data-dir>/broker."""
    from punctual_worker.local.broker import EmbeddedBroker

    stopped = stop_on_signals()
    kafka = EmbeddedBroker(
        settings.data_dir,
        port,
        host=host,
        heap_mb=heap_mb,
        extra_config=name_value_pairs(extra, flag="--set"),
    )
    with kafka:
        click.echo(f"Kafka listens on {kafka.bootstrap_servers}")
        click.echo(f"data in {kafka.data_dir}, log in {kafka.log_file}")
        click.echo("ready")
        while not stopped.wait(0.2):
            if not kafka.is_running():
                click.echo(f"Kafka ended by itself; see {kafka.log_file}", err=True)
                sys.exit(1)
