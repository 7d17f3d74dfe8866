"""A real intake process on a real broker: `punctual intake`, as a person would run it."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from punctual_worker.contract.topics import TopicNames, topic_specs
from punctual_worker.topics.admin import TopicAdmin
from support.eventually import eventually

_START_SECONDS = 180


class IntakeProcess:
    """Started by `with`; `kill` is a crash, the end of the block a clean stop."""

    def __init__(
        self, bootstrap_servers: str, app_id: str, *, data_dir: Path, flags: tuple[str, ...] = ()
    ) -> None:
        self.topics = TopicNames(app_id)
        self.bootstrap_servers = bootstrap_servers
        self.data_dir = data_dir
        self.log_file = data_dir / "intake.log"
        self._flags = ("--app-id", app_id, "--bootstrap-servers", bootstrap_servers, *flags)
        self._process: subprocess.Popen[bytes] | None = None

    def make_topics(self, *, partitions: int = 2) -> None:
        specs = topic_specs(
            self.topics,
            request_partitions=partitions,
            action_partitions=3,
            replication_factor=1,
            requests_cleanup="delete",
        )
        results = TopicAdmin({"bootstrap.servers": self.bootstrap_servers}).ensure(specs)
        assert all(result.ok for result in results), results

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        program = "from punctual_worker.cli import main; main()"
        flags = ("--data-dir", str(self.data_dir), "--http-port", "0", *self._flags)
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, "intake", *flags],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        eventually(lambda: self.is_ready, _START_SECONDS, self.log, interval=0.2)

    @property
    def is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"intake ended by itself: {self.log()}")
        try:
            return self.get("/readyz") == "ok\n"
        except (AssertionError, OSError):
            return False

    def get(self, path: str) -> str:
        """What the health server says."""
        lines = [line for line in self.log().splitlines() if "metrics and health on" in line]
        assert lines, "not serving yet"
        try:
            with urllib.request.urlopen(lines[0].split()[-1] + path, timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def stop(self, *, within: float = 30) -> int:
        """SIGTERM; the exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(within)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
