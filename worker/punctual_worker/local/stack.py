"""`punctual up`: broker, topics and all parts on this machine, as one thing that starts and ends.

The parts are processes of their own, as on a cluster: one that dies takes no other with it. The
console has the address that was given; health and metrics of all parts have one of their own.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from punctual_worker.contract.topics import TopicSpec
from punctual_worker.errors import PunctualError
from punctual_worker.health import HealthServer
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.local.merged_metrics import MergedMetrics
from punctual_worker.local.parts import Part
from punctual_worker.local.ports import claim_port
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin
from punctual_worker.topics.plan import TopicResult

PART_NAMES: Final = ("intake", "dispatcher", "console")
_TEND_SECONDS: Final = 0.2
_STOP_TIMEOUT_SECONDS: Final = 20.0

Say = Callable[[str], None]


class StackError(PunctualError):
    """The stack cannot be started."""


class Stack:
    """Everything that `up` starts. `start`, then `tend` regularly, then `stop`."""

    def __init__(
        self, settings: Settings, *, broker: EmbeddedBroker | None, topics: list[TopicSpec]
    ) -> None:
        """Without a broker of our own, `settings.bootstrap_servers` is used."""
        self.broker = broker
        self.settings = settings
        self._topics = topics
        self._parts: list[Part] = []
        self._front: HealthServer | None = None
        self._exit = ExitStack()

    @property
    def log_dir(self) -> Path:
        """Where the parts' logs are."""
        return self.settings.data_dir / "logs"

    @property
    def parts(self) -> list[Part]:
        """The processes, once started."""
        return self._parts

    @property
    def console_url(self) -> str:
        """Where the web page and the API are, once started."""
        return next((part.url for part in self._parts if part.name == "console"), "")

    @property
    def url(self) -> str:
        """Where health and metrics of all parts are served."""
        return self._front.url if self._front else ""

    def start(self, say: Say) -> None:
        """Start all; readiness comes later. What was started is stopped again if this fails."""
        with ExitStack() as undo:
            undo.callback(self.stop)
            port = self._console_port()
            self._serve_front()
            if self.broker is not None:
                self._exit.callback(self.broker.stop)
                say("starting Kafka")
                self.broker.start()
                self.settings = self.settings.model_copy(
                    # our own broker speaks plain text: TLS or SASL settings are for another one
                    update={"bootstrap_servers": self.broker.bootstrap_servers, "kafka": {}}
                )
                say(f"Kafka listens on {self.broker.bootstrap_servers}")
            self._make_topics(say)
            self._exit.callback(self._stop_parts)
            for name in PART_NAMES:
                self._start_part(name, port, say)
            undo.pop_all()

    def stop(self) -> None:
        """End everything that was started, in the opposite order."""
        self._exit.close()

    def tend(self, say: Say) -> None:
        """Restart what has died."""
        if self.broker is not None and not self.broker.is_running():
            say("Kafka has died; starting it again")
            self.broker.start()
        for part in self._parts:
            if news := part.tend():
                say(news)

    def readiness(self) -> tuple[bool, str]:
        """Ready when every part is; else what is being waited for."""
        if len(self._parts) < len(PART_NAMES):
            return False, "starting"
        answers = [(part.name, *part.readiness()) for part in self._parts]
        waiting = [f"{name}: {reason}" for name, ready, reason in answers if not ready]
        return not waiting, "; ".join(waiting) or "ready"

    def _start_part(self, name: str, console_port: int, say: Say) -> None:
        if name == "console":
            known = tuple(f"{part.name}={part.url}" for part in self._parts)
            settings = self.settings.model_copy(update={"console_parts": known})
            host = self.settings.http_host
            part = Part(name, settings, log_dir=self.log_dir, host=host, port=console_port)
        else:
            part = Part(name, self.settings, log_dir=self.log_dir)
        part.start()
        self._parts.append(part)
        say(f"{name} started, log in {part.log_file}")

    def _console_port(self) -> int:
        """Looked at first, so that a port in use is told before anything is started."""
        host, port = self.settings.http_host, self.settings.http_port
        try:
            return claim_port(host, port)
        except (OSError, OverflowError) as error:
            raise StackError(
                f"The console cannot be served on {host}:{port} "
                f"({getattr(error, 'strerror', None) or error}): choose another --http-port "
                "(0 takes a free one) or --http-host."
            ) from error

    def _serve_front(self) -> None:
        registry = CollectorRegistry()
        registry.register(MergedMetrics(self._parts))
        self._front = HealthServer(
            registry,
            host=self.settings.http_host,
            port=claim_port(self.settings.http_host, 0),
            ready=self.readiness,
        )
        self._exit.enter_context(self._front)

    def _make_topics(self, say: Say) -> None:
        results = TopicAdmin(librdkafka_config(self.settings)).ensure(self._topics)
        for result in results:
            if result.error is not None:
                raise StackError(f"Topic {result.plan.spec.name}: {result.error}.")
        say(f"topics {', '.join(_describe(result) for result in results)}")

    def _stop_parts(self) -> None:
        for part in self._parts:
            part.begin_stop()
        for part in self._parts:
            part.finish_stop(timeout=_STOP_TIMEOUT_SECONDS)


def _describe(result: TopicResult) -> str:
    name = result.plan.spec.name
    if result.plan.create:
        return f"{name} (created)"
    # a difference in partitions harms nobody: the parts go by what is there
    refused = [f"left as it is: {reason}" for reason in result.plan.refusals]
    repaired = [f"{repair.key} repaired" for repair in result.plan.repairs]
    return f"{name} ({'; '.join(repaired + refused)})" if repaired or refused else name


def run_stack(
    stack: Stack,
    stopped: threading.Event,
    *,
    say: Say,
    progress: Say,
    on_ready: Callable[[], None],
) -> None:
    """Start, call `on_ready` once all parts are ready, tend until `stopped`, end everything."""
    began = time.monotonic()
    stack.start(say)
    ready = False
    try:
        while not stopped.wait(_TEND_SECONDS):
            stack.tend(say)
            if not ready:
                ready, reason = stack.readiness()
                if ready:
                    on_ready()
                else:
                    progress(f"waiting {time.monotonic() - began:3.0f} s for {reason}")
        say("stopping")
    finally:
        stack.stop()
