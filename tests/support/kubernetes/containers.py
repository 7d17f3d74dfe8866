"""One container of the test node: a local process, restarted and probed as a kubelet would."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from punctual_worker.local import tether
from support.kubernetes.probes import Probe

_TICK_SECONDS = 0.05
# a kubelet begins at 10 s and goes up to 5 minutes
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class Run:
    """What to start: resolved, so that nothing is looked up any more."""

    command: Sequence[str]
    environment: Mapping[str, str]


class Container:
    """Runs in a thread of its own until it is told to stop, or is done by its restart policy."""

    def __init__(
        self,
        definition: Mapping[str, Any],
        *,
        address: str,
        restart_policy: str,
        grace_seconds: float,
        log_file: Path,
        prepare: Callable[[], Run],
    ):
        self.name: str = definition["name"]
        self.log_file = log_file
        self._definition = definition
        self._address = address
        self._restart_policy = restart_policy
        self._prepare = prepare
        self._process: subprocess.Popen[bytes] | None = None
        self._stop_by = threading.Event()
        self._grace_seconds = grace_seconds
        self._state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        self._last_state: dict[str, Any] = {}
        self._restarts = 0
        self._started = False
        self._ready = False
        self._thread = threading.Thread(target=self._live, name=f"container {self.name}")

    def start(self) -> None:
        self._thread.start()

    @property
    def ended(self) -> bool:
        """For good: stopped, or done by its restart policy."""
        return self._thread.ident is not None and not self._thread.is_alive()

    @property
    def finished(self) -> bool:
        """Done by its restart policy, as opposed to never started or stopped."""
        return "terminated" in self._state and self.ended

    @property
    def exit_status(self) -> int:
        """Of the last run."""
        return int(self._state.get("terminated", {}).get("exitCode", -1))

    @property
    def pid(self) -> int | None:
        """Of the process while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def ready(self) -> bool:
        return self._ready

    def status(self) -> dict[str, Any]:
        """An entry of `status.containerStatuses`."""
        return {
            "name": self.name,
            "image": self._definition["image"],
            "imageID": "",
            "ready": self._ready,
            "started": self._started,
            "restartCount": self._restarts,
            "state": self._state,
            "lastState": self._last_state,
        }

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM now, SIGKILL when the grace period is over; `ended` tells when it is done."""
        self._grace_seconds = grace_seconds
        self._stop_by.set()

    def join(self) -> None:
        self._thread.join()

    def _live(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stop_by.is_set():
            run = self._wait_for_preparation()
            if run is None:
                break
            status = self._run_once(run)
            if self._restart_policy == "Never" or (
                self._restart_policy == "OnFailure" and status == 0
            ):
                break
            if self._stop_by.is_set():
                break
            self._last_state = self._state
            self._state = {
                "waiting": {
                    "reason": "CrashLoopBackOff",
                    "message": f"ended with exit status {status}; see {self.log_file}",
                }
            }
            self._stop_by.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            self._restarts += 1

    def _wait_for_preparation(self) -> Run | None:
        """Tried until it works: a ConfigMap may come later than the pod that names it."""
        while not self._stop_by.is_set():
            try:
                return self._prepare()
            except Exception as error:  # whatever it is, the pod's status is the place to say so
                self._state = {
                    "waiting": {"reason": "CreateContainerConfigError", "message": str(error)}
                }
            self._stop_by.wait(0.2)
        return None

    def _run_once(self, run: Run) -> int:
        with self.log_file.open("ab") as output:
            self._process = process = tether.spawn(
                run.command, output=output, environment=run.environment
            )
        started_at = now()
        self._state = {"running": {"startedAt": started_at}}
        try:
            self._watch(process)
        finally:
            self._ready = self._started = False
            self._end(process)
        status = process.returncode
        # a shell's convention, which runtimes share: 128 and the signal's number
        code = status if status >= 0 else 128 - status
        self._state = {
            "terminated": {
                "exitCode": code,
                "reason": "Completed" if code == 0 else "Error",
                "startedAt": started_at,
                "finishedAt": now(),
            }
        }
        return code

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        startup, readiness, liveness = (
            Probe(self._definition.get(name), container=self._definition, address=self._address)
            for name in ("startupProbe", "readinessProbe", "livenessProbe")
        )
        while process.poll() is None and not self._stop_by.wait(_TICK_SECONDS):
            if not self._started:
                startup.ask_if_due()
                self._started = startup.passed
                if startup.failed:
                    self._note(f"startup probe failed: {startup.reason}")
                    return
                continue
            readiness.ask_if_due()
            self._ready = readiness.passed
            liveness.ask_if_due()
            if liveness.failed:
                self._note(f"liveness probe failed: {liveness.reason}")
                return

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
            deadline = time.monotonic() + self._grace_seconds
            while process.poll() is None and time.monotonic() < deadline:
                # a second `stop` may shorten the grace period
                deadline = min(deadline, time.monotonic() + self._grace_seconds)
                time.sleep(_TICK_SECONDS)
        # what it started ends with it, as everything in a container does
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _note(self, text: str) -> None:
        with self.log_file.open("a") as log:
            log.write(f"[test node] {now()} {text}\n")


def now() -> str:
    """As Kubernetes writes times."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
