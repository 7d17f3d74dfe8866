"""The operator as a process of its own, with the rights that a test gives it."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from punctual_worker.local import tether
from punctual_worker.local.ports import claim_port
from support.eventually import eventually

_HOST = "127.0.0.1"


class OperatorProcess:
    """`python -m punctual_operator`; ended with the test, whatever happens.

    Settings go by their names without the prefix: `watch_namespaces="a,b"`.
    """

    def __init__(self, *, kubeconfig: Path, log_file: Path, **settings: object):
        self.log_file = log_file
        self.port = claim_port(_HOST, 0)
        own = {
            "http_host": _HOST,
            "http_port": self.port,
            "log_level": "debug",
            **settings,
        }
        self._environment = {
            **{name: value for name, value in os.environ.items() if "PUNCTUAL_" not in name},
            **{f"PUNCTUAL_OPERATOR_{name.upper()}": str(value) for name, value in own.items()},
            "KUBECONFIG": str(kubeconfig),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> Self:
        with self.log_file.open("ab") as output:
            self._process = tether.spawn(
                [sys.executable, "-m", "punctual_operator"],
                output=output,
                environment=self._environment,
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout: float = 60) -> None:
        def ready() -> bool:
            assert self.running, self.log()[-3000:]
            return self.page("/readyz")[0] == 200

        eventually(ready, timeout, lambda: f"{self.page('/readyz')} {self.log()[-3000:]}")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages; status 0 if it cannot be reached."""
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self.port}{path}", timeout=5) as page:
                return int(page.status), page.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """Sum of a metric over its series, or over those with these labels."""
        wanted = [f'{label}="{value}"' for label, value in (labels or {}).items()]
        status, text = self.page("/metrics")
        assert status == 200, text
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith((f"{name} ", f"{name}{{")) and all(each in line for each in wanted)
        )

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def kill(self) -> None:
        """As the kernel's out-of-memory killer would."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self, timeout: float = 30) -> int:
        """End it in good order; its exit status."""
        if self._process is None:
            return 0
        try:
            return tether.stop(self._process, timeout=timeout)
        finally:
            self._process = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
