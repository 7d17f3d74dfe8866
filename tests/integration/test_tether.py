"""Children end with their parent, and only with it."""

import os
import signal
import subprocess
import sys
import threading

import psutil
from punctual_worker.local import tether
from support.eventually import eventually


def test_a_child_outlives_the_thread_that_asked_for_it() -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(tether.spawn(["sleep", "600"])))
    thread.start()
    thread.join()

    (child,) = started
    # the signal would come at once if it came
    eventually(lambda: psutil.Process(child.pid).name() == "sleep", 10, "it is running")
    assert child.poll() is None
    assert tether.stop(child, timeout=10) == -signal.SIGTERM


def test_a_child_that_does_not_listen_is_killed() -> None:
    child = tether.spawn(["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done"])
    eventually(lambda: psutil.Process(child.pid).name() == "sh", 10, "it is running")
    eventually(lambda: psutil.Process(child.pid).children(), 10, "the trap is set")

    assert tether.stop(child, timeout=0.2) == -signal.SIGKILL


def test_a_child_dies_with_a_killed_parent() -> None:
    program = (
        "from punctual_worker.local import tether\n"
        "child = tether.spawn(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        eventually(lambda: psutil.Process(pid).name() == "sleep", 10, "it is running")
        os.kill(parent.pid, signal.SIGKILL)

    eventually(lambda: not psutil.pid_exists(pid), 10, "the child is gone")
