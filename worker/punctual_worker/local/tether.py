"""Child processes that cannot outlive us, however we end.

Linux sends a child a signal of its choice when its parent is gone (PR_SET_PDEATHSIG). "Parent"
means the *thread* that made the child, so all children are made by one thread that lives as long as
the process. The request must be made in the child; doing it between fork and exec would run Python
in a forked, threaded process, so this file is also a program that asks for the signal and then
becomes the real one. Elsewhere than on Linux children are only stopped by an orderly end.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

_SPAWNER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
_PR_SET_PDEATHSIG: Final = 1


def spawn(
    command: Sequence[str],
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    output: IO[bytes] | int | None = None,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, so that Ctrl-C reaches us alone and we end it."""
    program = [sys.executable, "-S", "-E", __file__, str(os.getpid()), str(int(death_signal))]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 the caller's own command
            [*program, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            env=environment,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )

    return _SPAWNER.submit(start).result()


def stop(process: subprocess.Popen[bytes], *, timeout: float) -> int:
    """SIGTERM, then SIGKILL if it is still there after `timeout` seconds; its exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def _become(parent: int, death_signal: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 the caller's own command


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
