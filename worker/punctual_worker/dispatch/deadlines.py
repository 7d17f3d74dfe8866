"""Calls that must come back: a client library may hang past the time-out it was given.

Seen with librdkafka: `send_offsets_to_transaction` after a broker outage did not return at all. A
dispatcher that waits for ever is worse than one that starts over, so such calls are made by a
thread that can be left behind.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

_MARGIN_SECONDS: Final = 3.0
_log = logging.getLogger(__name__)


class HangingCallError(Exception):
    """A call did not return in its time; nobody knows what became of it."""


class Caller:
    """Makes blocking calls, one at a time, each with a time to return in."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], queue.SimpleQueue[Any]] | None]
        self._calls = queue.SimpleQueue()
        self.hangs = False
        """Whether a call was left behind: then what it was made on cannot be closed either."""
        threading.Thread(target=self._work, name="kafka-calls", daemon=True).start()

    def call(
        self,
        what: Callable[[], None],
        seconds: float,
        *,
        meanwhile: Callable[[], bool] | None = None,
    ) -> None:
        """Make the call, and raise what it raises; `HangingCallError` if it does not return.

        Until it does, `meanwhile` is called: work in small pieces, False when there is no more.
        """
        answer: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._calls.put((what, answer))
        while meanwhile is not None and answer.empty() and meanwhile():
            pass
        try:
            error = answer.get(timeout=seconds + _MARGIN_SECONDS)
        except queue.Empty:
            self.hangs = True
            raise HangingCallError(f"a Kafka call has not returned for {seconds:g} s") from None
        if error is not None:
            raise error

    def close(self) -> None:
        """End the thread once it is idle."""
        self._calls.put(None)

    def _work(self) -> None:
        while (order := self._calls.get()) is not None:
            what, answer = order
            try:
                what()
                answer.put(None)
            except BaseException as error:  # handed to the caller, whatever it is
                answer.put(error)
