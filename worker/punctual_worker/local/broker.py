"""A real Kafka on this machine: one node, KRaft, data kept under `<data-dir>/broker`.

For laptops, demos and tests. The process dies with ours; `stop` ends it cleanly, `kill` does not.
"""

import base64
import fcntl
import logging
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from punctual_worker.errors import PunctualError
from punctual_worker.local import tether
from punctual_worker.local.broker_config import log4j_xml, server_properties
from punctual_worker.local.jars import jar_paths
from punctual_worker.local.java import find_java
from punctual_worker.local.ports import claim_port

_START_TIMEOUT_SECONDS: Final = 60
_STOP_TIMEOUT_SECONDS: Final = 20
_LOCK_PATIENCE_SECONDS: Final = 5
"""A broker whose owner was just killed needs a moment to be gone."""
_POLL_SECONDS: Final = 0.05

_log = logging.getLogger(__name__)
_silent = logging.getLogger(f"{__name__}.probe")
_silent.setLevel(logging.CRITICAL)  # that a starting broker refuses connections is no news


class BrokerError(PunctualError):
    """The embedded broker cannot be started."""


class EmbeddedBroker:
    """One Kafka node. Can be started, stopped and killed any number of times on the same data."""

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        heap_mb: int = 768,
        extra_config: Mapping[str, str] | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        """Nothing is started yet. Port 0 takes a free port and keeps it for this object's life."""
        self.data_dir = (data_dir / "broker").absolute()
        self.log_file = self.data_dir / "broker.log"
        self._host = host
        self._port = port
        self._heap_mb = heap_mb
        self._extra_config = dict(extra_config or {})
        self._cache_dir = cache_dir
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def port(self) -> int:
        """Where it listens; 0 if it was to take a free port and has not been started yet."""
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """For clients."""
        return f"{self._host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self.is_running() and self._process else None

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until a client is served; `BrokerError` says why it is not."""
        if self.is_running():
            return
        java = find_java()
        jars = jar_paths("broker", cache_dir=self._cache_dir)
        with _open_lock(self.data_dir) as lock:
            _take_lock(lock, self.data_dir)
            self._port = _claim_port(self._host, self._port)
            self._write_config()
            log_config = f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.xml'}"
            run = [str(java), "-cp", os.pathsep.join(map(str, jars)), log_config]
            self._format(run)
            # the lock is the process's from now on
            self._process = self._spawn(run, lock_fd=lock.fileno())
        self._wait_until_served()

    def stop(self, timeout: float = _STOP_TIMEOUT_SECONDS) -> None:
        """End it cleanly, or by force after `timeout` seconds."""
        if self._process is not None:
            tether.stop(self._process, timeout=timeout)
            self._process = None

    def kill(self) -> None:
        """SIGKILL, as in a power cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop and start on the same data and port."""
        self.stop()
        self.start()

    def wait(self) -> int:
        """Block until the process ends by itself; its exit status."""
        return 0 if self._process is None else self._process.wait()

    def _spawn(self, run: list[str], *, lock_fd: int) -> subprocess.Popen[bytes]:
        tuning = [f"-Xmx{self._heap_mb}m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        server = ["kafka.Kafka", str(self.data_dir / "server.properties")]
        with (self.data_dir / "broker.out").open("wb") as output:
            return tether.spawn(
                [*run, *tuning, "-XX:-UsePerfData", *server], output=output, pass_fds=[lock_fd]
            )

    def _write_config(self) -> None:
        properties = server_properties(
            log_dir=self.data_dir / "data",
            host=self._host,
            port=self._port,
            controller_port=_claim_port("127.0.0.1", 0),
            extra=self._extra_config,
        )
        path = self.data_dir / "server.properties"
        path.touch(mode=0o600)  # may hold passwords of further listeners
        path.write_text(properties)
        (self.data_dir / "log4j2.xml").write_text(log4j_xml(self.log_file))

    def _format(self, run: list[str]) -> None:
        """Give new storage its identity; what is there already stays."""
        if (self.data_dir / "data" / "meta.properties").exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().strip("=")
        done = subprocess.run(  # noqa: S603 all arguments are ours
            [
                *run,
                "-XX:TieredStopAtLevel=1",
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={cluster_id}",
                "--config",
                str(self.data_dir / "server.properties"),
            ],
            capture_output=True,
            text=True,
            timeout=_START_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            reason = _telling_line((done.stdout + done.stderr).splitlines()) or "no reason given"
            raise BrokerError(f"The broker's storage could not be formatted: {reason}.")

    def _wait_until_served(self) -> None:
        assert self._process is not None  # noqa: S101 for the type checker
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while not _accepts(self._host, self._port):
            self._check_alive(deadline)
        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap_servers, "reconnect.backoff.max.ms": 200},
            logger=_silent,
        )
        while True:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException as error:
                _log.debug("broker not ready: %s", error)
            self._check_alive(deadline)

    def _check_alive(self, deadline: float) -> None:
        assert self._process is not None  # noqa: S101 for the type checker
        status = self._process.poll()
        if status is not None:
            self._process = None
            raise BrokerError(
                f"The broker ended with status {status} while starting: {self._last_words()}"
            )
        if time.monotonic() > deadline:
            self.kill()
            raise BrokerError(
                f"The broker was not ready after {_START_TIMEOUT_SECONDS} s; see {self.log_file}."
            )
        time.sleep(_POLL_SECONDS)

    def _last_words(self) -> str:
        """The line that tells most, for the error message."""
        for path in (self.log_file, self.data_dir / "broker.out"):
            lines = path.read_text(errors="replace").splitlines() if path.exists() else []
            if line := _telling_line(lines[-200:]):
                return f"{line} (see {path})"
        return f"see {self.log_file}"


def _telling_line(lines: list[str]) -> str:
    """The last line that names an error, without the stack below it."""
    for sign in ("Exception", "Error", "ERROR"):
        for line in reversed(lines):
            if sign in line and not line.startswith("\tat "):
                return line.strip()
    return ""


def _open_lock(directory: Path) -> IO[str]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / "lock").open("w")
    except OSError as error:
        raise BrokerError(f"The broker's data directory cannot be written: {error}.") from error


def _take_lock(lock: IO[str], directory: Path) -> None:
    deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"The data directory {directory} is in use by another broker: stop that one, "
                    "or choose another --data-dir."
                ) from None
            time.sleep(_POLL_SECONDS)


def _claim_port(host: str, port: int) -> int:
    try:
        return claim_port(host, port)
    except OSError as error:
        raise BrokerError(
            f"Port {port} on {host} cannot be used for the broker ({error.strerror}): "
            "stop what listens there, or choose another port."
        ) from error


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
