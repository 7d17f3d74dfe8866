"""`punctual broker`, `up` and `demo`: what runs on this machine alone."""

import sys
from typing import Final

import click

from punctual_worker.commands.options import (
    CONNECTION,
    CONSOLE,
    DISPATCHER,
    INTAKE,
    SERVING,
    TOPICS,
    name_value_pairs,
    with_settings,
)
from punctual_worker.local.screen import Screen
from punctual_worker.local.signals import stop_on_signals
from punctual_worker.settings import Settings
from punctual_worker.topics.wanted import wanted_topics

DEFAULT_BROKER_PORT: Final = 9092


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


@click.command()
@with_settings(*CONNECTION, *SERVING, *TOPICS, *INTAKE, *DISPATCHER, *CONSOLE)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_BROKER_PORT,
    show_default=True,
    help="Port of the embedded broker; 0 takes a free one.",
)
def up(settings: Settings, *, port: int) -> None:
    """Run everything on this machine, until Ctrl-C.

    With --bootstrap-servers that Kafka is used, else one is started with its data under
    <data-dir>/broker. Prints `ready` once a request would be served.
    """
    from punctual_worker.local.broker import EmbeddedBroker
    from punctual_worker.local.stack import Stack, run_stack

    stopped = stop_on_signals()
    own_broker = "bootstrap_servers" not in settings.model_fields_set
    broker = EmbeddedBroker(settings.data_dir, port) if own_broker else None
    stack = Stack(settings, broker=broker, topics=wanted_topics(settings))
    screen = Screen()

    def on_ready() -> None:
        names = settings.topics
        screen.say(f"requests go to {names.requests}, rejections come to {names.rejections}")
        screen.say(f"console on {stack.console_url}")
        screen.say(f"health and metrics of all parts on {stack.url}")
        screen.say("ready")

    run_stack(stack, stopped, say=screen.say, progress=screen.progress, on_ready=on_ready)


@click.command()
@with_settings("data_dir")
@click.option("--once", is_flag=True, help="End by itself; the exit status tells how it went.")
def demo(settings: Settings, *, once: bool) -> None:
    """Run everything, send a few requests and show what becomes of them."""
    from punctual_worker.local.demo import run_demo

    sys.exit(run_demo(settings, once=once, stopped=stop_on_signals(), screen=Screen()))
