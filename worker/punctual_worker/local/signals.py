"""Turning SIGINT and SIGTERM into an event that a main loop can wait for."""

import signal
import threading
from types import FrameType


def stop_on_signals() -> threading.Event:
    """An event that is set by the first SIGINT or SIGTERM. Main thread only."""
    stopped = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stopped.set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    return stopped
