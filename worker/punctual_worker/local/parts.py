"""A part of the system as a child process: started, asked for its health, restarted if it dies."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from punctual_worker.kafka_clients import revealed_properties
from punctual_worker.local import tether
from punctual_worker.local.ports import claim_port
from punctual_worker.settings import ENV_PREFIX, Settings

_BACKOFF_SECONDS: Final = (0.5, 10.0)
_SETTLED_SECONDS: Final = 60.0
"""A part that lived this long starts anew without a grudge."""
_PROBE_TIMEOUT_SECONDS: Final = 2.0
_LOOPBACK: Final = "127.0.0.1"
_ANY: Final = ("0.0.0.0", "::")  # noqa: S104 the user's choice; we ask ourselves on loopback


class Part:
    """One command of this same program, with settings handed over unseen by the process list."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        *,
        log_dir: Path,
        host: str = _LOOPBACK,
        port: int = 0,
    ) -> None:
        """Nothing is started yet. A free port is taken for 0, and kept over restarts."""
        self.name = name
        self._host = host
        self.log_file = log_dir / f"{name}.log"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._port = port
        self._started_at = 0.0
        self._backoff = _BACKOFF_SECONDS[0]
        self._restart_at: float | None = None

    @property
    def url(self) -> str:
        """Where its metrics and health are."""
        host = _LOOPBACK if self._host in _ANY else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process else None

    def start(self) -> None:
        """Start the process; its output goes to the log file."""
        self._port = self._port or claim_port(self._host, 0)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as config, self.log_file.open("ab") as log:
            config.write(_as_config(self._settings))
            config.flush()
            config.seek(0)
            self._process = tether.spawn(
                [
                    *(sys.executable, "-m", "punctual_worker.cli", self.name),
                    *("--config", f"/dev/fd/{config.fileno()}"),
                    *("--http-host", self._host, "--http-port", str(self._port)),
                ],
                output=log,
                environment=_without_settings(dict(os.environ)),
                pass_fds=[config.fileno()],
            )
        self._started_at = time.monotonic()
        self._restart_at = None

    def tend(self) -> str | None:
        """Restart it if it has died and its pause is over; a sentence if there is news."""
        now = time.monotonic()
        if self._restart_at is not None:
            if now >= self._restart_at:
                self.start()
            return None
        status = None if self._process is None else self._process.poll()
        if status is None:
            return None
        if now - self._started_at > _SETTLED_SECONDS:
            self._backoff = _BACKOFF_SECONDS[0]
        pause, self._backoff = self._backoff, min(self._backoff * 2, _BACKOFF_SECONDS[1])
        self._restart_at = now + pause
        return (
            f"{self.name} {self._describe_end(status)}; started again in {pause:g} s "
            f"(log in {self.log_file})"
        )

    def readiness(self) -> tuple[bool, str]:
        """What its `/readyz` says."""
        if self.pid is None:
            return False, "not running"
        try:
            with urllib.request.urlopen(  # noqa: S310 our own loopback address
                f"{self.url}/readyz", timeout=_PROBE_TIMEOUT_SECONDS
            ) as answer:
                return True, answer.read().decode(errors="replace").strip()
        except urllib.error.HTTPError as error:
            with error:
                return False, error.read().decode(errors="replace").strip()
        except OSError:
            return False, "starting"

    def metrics(self) -> str:
        """What its `/metrics` says; nothing while it cannot answer."""
        try:
            with urllib.request.urlopen(  # noqa: S310 our own loopback address
                f"{self.url}/metrics", timeout=_PROBE_TIMEOUT_SECONDS
            ) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def begin_stop(self) -> None:
        """Ask it to end, without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def finish_stop(self, *, timeout: float) -> None:
        """Wait for its end; by force after `timeout` seconds."""
        if self._process is not None:
            tether.stop(self._process, timeout=timeout)
            self._process = None

    def _describe_end(self, status: int) -> str:
        if status < 0:  # killed from outside: its last words would not tell why
            return f"was ended by {signal.Signals(-status).name}"
        lines = self.log_file.read_text(errors="replace").strip().splitlines()[-1:]
        words = f" ({lines[0].strip()})" if lines else ""
        return f"ended with status {status}{words}"


def _as_config(settings: Settings) -> bytes:
    """The settings as a config file (JSON is YAML), secrets included: it has no name on disk."""
    content = settings.model_dump(mode="json", exclude={"kafka", "console_token"})
    if settings.console_token is not None:
        content["console_token"] = settings.console_token.get_secret_value()
    return json.dumps({**content, "kafka": revealed_properties(settings)}).encode()


def _without_settings(environment: dict[str, str]) -> dict[str, str]:
    """Variables would win over the config file, though they are in it already."""
    fields = {ENV_PREFIX + name.upper() for name in Settings.model_fields}
    return {
        name: value
        for name, value in environment.items()
        if name not in fields and not name.startswith(f"{ENV_PREFIX}KAFKA_")
    }
