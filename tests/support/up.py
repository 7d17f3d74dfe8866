"""`punctual up` as a person runs it: a process that says `ready` and ends when told."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from support.eventually import eventually


class RunningUp:
    """A running `punctual up`, its output, and the processes below it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_ready(self, timeout: float = 120) -> None:
        """Until the word stands on a line of its own."""

        def ready() -> bool:
            assert self.process.poll() is None, f"ended: {self.lines}"
            return "ready" in self.lines

        eventually(ready, timeout, lambda: self.lines)

    @property
    def bootstrap_servers(self) -> str:
        return self._told(r"Kafka listens on (\S+)")

    @property
    def url(self) -> str:
        return self._told(r"health and metrics of all parts on (\S+)")

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def part(self, name: str) -> psutil.Process:
        """The process of one part."""
        (found,) = [
            child
            for child in psutil.Process(self.process.pid).children()
            if child.cmdline()[1:4] == ["-m", "punctual_worker.cli", name]
        ]
        return found

    def _told(self, pattern: str) -> str:
        for line in self.lines:
            if match := re.search(pattern, line):
                return match[1]
        raise AssertionError(f"not told: {pattern} in {self.lines}")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))


@contextmanager
def running_up(data_dir: Path, app_id: str, arguments: Sequence[str] = ()) -> Iterator[RunningUp]:
    """Start it, wait until it is ready, end it (at the latest) with the block."""
    command = [sys.executable, "-m", "punctual_worker.cli", "up", "--app-id", app_id]
    command += ["--data-dir", str(data_dir), "--http-port", "0", *arguments]
    if "--bootstrap-servers" not in arguments:
        command += ["--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        up = RunningUp(process)
        try:
            up.wait_ready()
            yield up
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()
