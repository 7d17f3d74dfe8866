"""`punctual console`: from settings to a running server, until SIGTERM."""

import contextlib
import fcntl
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvicorn
from prometheus_client import CollectorRegistry, Gauge

from punctual_worker.client import Client
from punctual_worker.console import logs as log_topics
from punctual_worker.console.app import make_app
from punctual_worker.console.bulk import Bulk
from punctual_worker.console.checkpoints import Checkpoints
from punctual_worker.console.effects import Effects
from punctual_worker.console.filters import Filters
from punctual_worker.console.following import Follower
from punctual_worker.console.parts import PartsWatch
from punctual_worker.console.queries import Queries
from punctual_worker.console.reading import Reader
from punctual_worker.console.records import Records
from punctual_worker.console.security import make_policy
from punctual_worker.console.service import Console
from punctual_worker.console.stories import Stories
from punctual_worker.console.writes import Writes
from punctual_worker.errors import PunctualError
from punctual_worker.local.ports import claim_port
from punctual_worker.local.signals import stop_on_signals
from punctual_worker.settings import Settings

_DATABASE: Final = "view.db"
_LOOK_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)


class ConsoleError(PunctualError):
    """The console cannot work here."""


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    stopped = stop_on_signals()
    with running(settings) as url:
        _log.info("pages, API, metrics and health on %s", url)
        stopped.wait()
    _log.info("stopped")
    return 0


@contextlib.contextmanager
def running(settings: Settings) -> Iterator[str]:
    """A console that serves in threads of its own; where."""
    directory = settings.data_dir / "console" / settings.app_id
    policy = make_policy(settings)
    registry = CollectorRegistry()
    with _claimed(directory), contextlib.ExitStack() as undo:
        port = _port(settings)
        console = _assemble(settings, directory, registry, undo)
        _add_gauges(console, registry)
        if policy.read_only and not settings.console_read_only:
            _log.warning("open to the network without a token or users: read-only")
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(console, policy, registry),
                host=settings.http_host,
                port=port,
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="off",
                proxy_headers=False,  # we decide ourselves whom to believe
                timeout_graceful_shutdown=5,
                h11_max_incomplete_event_size=65_536,
            )
        )
        thread = threading.Thread(target=server.run, name="http", daemon=True)
        thread.start()
        undo.callback(_stop_server, server, thread)
        while not server.started:
            thread.join(_LOOK_SECONDS / 10)
            if not thread.is_alive():
                raise ConsoleError(
                    f"The console cannot be served on {settings.http_host}:{port}: choose another"
                    " --http-port (0 takes a free one) or --http-host."
                )
        host = settings.http_host
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _assemble(
    settings: Settings, directory: Path, registry: CollectorRegistry, undo: contextlib.ExitStack
) -> Console:
    logs = log_topics.Logs(settings, database=directory / _DATABASE)
    checkpoints = Checkpoints(
        logs.config, topic=logs.actions, group_id=f"{settings.app_id}-dispatcher"
    )
    effects, reader = Effects(), Reader(logs.database)
    follower = Follower(logs, checkpoints, effects, reader, log_topics.now_ms)
    queries, records = Queries(reader), Records(logs)
    undo.callback(records.close)
    client = undo.enter_context(Client(settings))
    writes = Writes(client, effects, checkpoints, queries, registry)
    bulk = Bulk(
        directory / "bulk",
        queries=queries,
        records=records,
        writes=writes,
        actions_topic=logs.actions,
        now_ms=log_topics.now_ms,
    )
    undo.callback(bulk.stop)
    parts = PartsWatch(settings.console_parts)
    follower.start()
    undo.callback(follower.stop)
    parts.start()
    undo.callback(parts.stop)
    return Console(
        settings,
        follower,
        checkpoints,
        queries,
        Stories(reader),
        records,
        writes,
        bulk,
        parts,
        log_topics.now_ms,
    )


def _add_gauges(console: Console, registry: CollectorRegistry) -> None:
    def gauge(name: str, text: str) -> Gauge:
        return Gauge(f"punctual_console_{name}", text, registry=registry)

    def pending() -> float:
        complete = console.follower.lag().complete
        return float(console.queries.count(Filters()).number) if complete else 0.0

    gauge("pending", "Schedules in the view").set_function(pending)
    gauge("behind_records", "Records not read yet").set_function(
        lambda: float(console.follower.lag().records)
    )
    gauge("behind_seconds", "Age of the oldest record not read yet").set_function(
        lambda: console.follower.lag().seconds
    )
    gauge("records_read", "Records read since the start").set_function(
        lambda: float(console.follower.rows_read)
    )


def _stop_server(server: uvicorn.Server, thread: threading.Thread) -> None:
    server.should_exit = True
    thread.join()


def _port(settings: Settings) -> int:
    try:
        return claim_port(settings.http_host, settings.http_port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConsoleError(
            f"The console cannot be served on {settings.http_host}:{settings.http_port} "
            f"({reason}): choose another --http-port (0 takes a free one) or --http-host."
        ) from error


@contextlib.contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    """Two consoles in one directory would write one database."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise ConsoleError(f"{directory} cannot be used: {error.strerror}.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConsoleError(
                f"The directory {directory} is in use by another console: give this one another "
                "--data-dir."
            ) from None
        yield
