"""`punctual-operator`: settings, metrics, Lease, then the watches, until SIGTERM; `check` looks how
another one does."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kubernetes import client, config
from prometheus_client import CollectorRegistry
from punctual_worker.errors import PunctualError
from punctual_worker.health import HealthServer
from punctual_worker.logs import configure_logging

from punctual_operator import check
from punctual_operator.child_step import ChildStep
from punctual_operator.clients.kafka import KafkaClusters
from punctual_operator.clients.kubernetes import Kubernetes
from punctual_operator.clients.lease import Leadership
from punctual_operator.clients.workers import Workers
from punctual_operator.deletion import Deletion
from punctual_operator.errors import KubernetesError
from punctual_operator.handlers import Listeners, Watches
from punctual_operator.known import KnownSchedulers
from punctual_operator.metrics import OperatorMetrics
from punctual_operator.reconcile import Reconciler, Steps
from punctual_operator.resources.pods import Defaults
from punctual_operator.settings import OperatorSettings, SettingsError, load_settings
from punctual_operator.topic_step import SecretReader, TopicStep
from punctual_operator.workqueue import WorkQueue

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FIGURES_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 2.0
_API_THREADS: Final = 32
_IO_THREADS: Final = 64
_SILENT_SECONDS: Final = 60.0
"""A loop that was stuck for this long is not alive."""
_log = logging.getLogger("punctual_operator")


class WatchesEndedError(PunctualError):
    """Nothing is heard of the API server any more: only a new process helps."""


class Operator:
    """One replica: stands by until it holds the Lease, then looks after the Schedulers."""

    def __init__(self, settings: OperatorSettings, namespace: str) -> None:
        self._settings = settings
        self.registry = CollectorRegistry()
        self._metrics = OperatorMetrics(self.registry)
        identity = settings.identity or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._leadership = Leadership(
            name=settings.lease_name,
            namespace=namespace,
            identity=identity,
            lease_seconds=settings.lease_seconds,
        )
        self._beat = time.monotonic()
        self._state = "starting"

    def readiness(self) -> tuple[bool, str]:
        """A replica that stands by is ready to take over, which is all that it is for."""
        return self._state in ("standing by", "active"), self._state

    def liveness(self) -> tuple[bool, str]:
        """Alive while its loop turns."""
        silent = time.monotonic() - self._beat
        return silent < _SILENT_SECONDS, f"the loop turned {silent:.0f} s ago"

    async def run(self) -> int:
        """Until SIGTERM or SIGINT, or until the Lease is lost; the exit status."""
        loop = asyncio.get_running_loop()
        stop, changed = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        heart = asyncio.create_task(self._keep_beating())
        self._state = "standing by"

        def on_change() -> None:
            loop.call_soon_threadsafe(changed.set)

        self._leadership.start(on_change=on_change)
        try:
            await _first(stop, changed)
            if stop.is_set():
                return 0
            changed.clear()
            await self._lead(stop, changed)
            self._leadership.release()
            return 1 if self._leadership.lost.is_set() else 0
        finally:
            heart.cancel()
            self._metrics.leading.set(0)

    async def _lead(self, stop: asyncio.Event, lost: asyncio.Event) -> None:
        self._metrics.leading.set(1)
        known = KnownSchedulers()
        for truth in ("True", "False", "Unknown"):
            self._metrics.schedulers.labels(truth).set_function(known.counter(truth))
        api, io = ThreadPoolExecutor(_API_THREADS, "api"), ThreadPoolExecutor(_IO_THREADS, "io")
        try:
            kubernetes = Kubernetes(_api_client(), api, self._metrics)
            if not await self._definition_is_there(kubernetes, stop, lost):
                return
            queue = self._queue(known, kubernetes, io)
            watches = Watches(Listeners(queue, known), namespaces=self._settings.watch_namespaces)
            watches.start()
            self._state = "active"
            await _first(stop, lost, watches.ended)
            self._state = "stopping"
            ended_by_itself = watches.ended.is_set()
            await queue.close()
            await watches.stop()
            if ended_by_itself:
                raise WatchesEndedError("The watches ended: see the log above.")
        finally:
            # who still waits for a Kafka that does not answer is not waited for
            for threads in (api, io):
                threads.shutdown(wait=False, cancel_futures=True)

    async def _definition_is_there(
        self, kubernetes: Kubernetes, stop: asyncio.Event, lost: asyncio.Event
    ) -> bool:
        """The watches look for kinds once only, so they wait for ours; False if told to stop."""
        while not (stop.is_set() or lost.is_set()):
            try:
                if await kubernetes.serves_schedulers():
                    return True
                reason = "the definition of schedulers.punctual.dev is not installed"
            except KubernetesError as error:
                reason = str(error)
            if self._state != reason:
                _log.warning("waiting: %s", reason)
                self._state = reason
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(_first(stop, lost), _LOOK_SECONDS)
        return False

    def _queue(
        self, known: KnownSchedulers, kubernetes: Kubernetes, io: ThreadPoolExecutor
    ) -> WorkQueue:
        settings = self._settings
        kafka = KafkaClusters(io, self._metrics, timeout=settings.kafka_timeout_seconds)
        secrets = SecretReader(kubernetes)
        topics = TopicStep(secrets, kafka, known.all)
        reconciler = Reconciler(
            kubernetes=kubernetes,
            workers=Workers(io),
            steps=Steps(
                topics, ChildStep(kubernetes), Deletion(kubernetes, kafka, secrets, topics)
            ),
            known=known,
            defaults=Defaults(settings.worker_image, settings.image_pull_policy),
            figures_seconds=min(settings.resync_seconds, _FIGURES_SECONDS),
        )
        return WorkQueue(
            reconciler.reconcile,
            metrics=self._metrics,
            resync_seconds=settings.resync_seconds,
            concurrency=settings.concurrency,
        )

    async def _keep_beating(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(1)


async def _first(*events: asyncio.Event) -> None:
    """Until one of them is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def main() -> None:
    """Run the operator with settings from the environment."""
    asked = check.parse(sys.argv[1:]) if sys.argv[1:] else None
    os.environ.setdefault("USER", "punctual")  # kopf asks for it, and a uid may have no name
    try:
        settings = load_settings(os.environ)
        configure_logging(format=settings.log_format, level=settings.log_level)
        _quieten(settings.log_level)
        config.load_config()
        namespace = settings.lease_namespace or _own_namespace()
        if asked is not None:
            sys.exit(check.run(asked, settings, namespace=namespace, api=_api_client()))
        operator = Operator(settings, namespace)
        health = HealthServer(
            operator.registry,
            host=settings.http_host,
            port=settings.http_port,
            ready=operator.readiness,
            live=operator.liveness,
        )
        with health:
            _log.info("metrics and health on %s", health.url)
            status = asyncio.run(operator.run())
        _log.info("stopped")
        logging.shutdown()
        os._exit(status)  # the ordinary end would wait for threads that wait for Kafka
    except (SettingsError, PunctualError, config.ConfigException) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


def _api_client() -> client.ApiClient:
    """With a connection for each thread."""
    configuration = client.Configuration.get_default_copy()
    configuration.connection_pool_maxsize = _API_THREADS
    return client.ApiClient(configuration)


def _quieten(level: str) -> None:
    logging.getLogger("punctual_operator").setLevel(level.upper())
    logging.getLogger("leaderelection").setLevel(logging.WARNING)
    # warns at each start that it leaves signals to us, as it should
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


def _own_namespace() -> str:
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"


if __name__ == "__main__":
    main()
