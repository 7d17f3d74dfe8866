"""Parts of Punctual as processes of their own, as a user runs them."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from support.eventually import eventually


class Part:
    """One `punctual <command>`; ended with the test, whatever happens."""

    def __init__(self, command: str, *, bootstrap_servers: str, app_id: str, folder: Path, **env):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log_file = folder / f"{command}.log"
        self._command = command
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **{name: value for name, value in os.environ.items() if "PUNCTUAL_" not in name},
            "PUNCTUAL_BOOTSTRAP_SERVERS": bootstrap_servers,
            "PUNCTUAL_APP_ID": app_id,
            "PUNCTUAL_DATA_DIR": str(folder),
            "PUNCTUAL_HTTP_PORT": "0",
            **{f"PUNCTUAL_{name.upper()}": str(value) for name, value in env.items()},
        }
        if cache := os.environ.get("PUNCTUAL_CACHE_DIR"):
            self._environment["PUNCTUAL_CACHE_DIR"] = cache

    def start(self, *, wait: bool = True) -> Self:
        already = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "punctual_worker.cli", self._command],
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        def port() -> int:
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            for line in self.log()[already:].splitlines():
                if "metrics and health on http" in line:
                    return int(line.rsplit(":", 1)[1])
            return 0

        self._port = eventually(port, 60, self.log)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout: float = 90) -> None:
        eventually(lambda: self.readiness()[0], timeout, lambda: f"{self.readiness()} {self.log()}")

    def readiness(self) -> tuple[bool, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5) as page:
                return True, page.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return False, error.read().decode()
        except OSError as error:
            return False, str(error)

    def metrics(self) -> list[str]:
        """The lines of `/metrics`."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as page:
            return list(page.read().decode().splitlines())

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels, or the one whose line begins with `name`."""
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in self.metrics()
            if line.startswith((f"{name} ", f"{name}{{")) or ("{" in name and line.startswith(name))
        )

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As the kernel's out-of-memory killer would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def stop(self, timeout: float = 30) -> int:
        """End it cleanly; its exit status."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(timeout)
        finally:
            self.kill_if_left()

    def kill_if_left(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill_if_left()
