"""Calls that must come back: a client library may hang past the time-out it was given.

Seen with librdkafka: `send_offsets_to_transaction` after a broker outage did not return at all. A
dispatcher that waits for ever is worse than one that starts over, so such calls are made by a
thread that can be left behind.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

_MARGIN_SECONDS: Final = 3.0
_log = logging.getLogger(__name__)


Answer = queue.SimpleQueue[BaseException | None]
"""What a call has come to, once it has: an error or nothing."""


class HangingCallError(Exception):
    """A call did not return in its time; nobody knows what became of it."""


class HandOver:
    """Lets a call go on once a block of ours is through; not if that has failed."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._succeeded = False

    def wait(self) -> bool:
        """Until the block has ended; whether it has succeeded."""
        self._over.wait()
        return self._succeeded

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._succeeded = kind is None
        self._over.set()


class Caller:
    """Makes blocking calls, one at a time, each with a time to return in."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], Answer] | None]
        self._calls = queue.SimpleQueue()
        self.hangs = False
        """Whether a call was left behind: then what it was made on cannot be closed either."""
        threading.Thread(target=self._work, name="kafka-calls", daemon=True).start()

    def call(self, what: Callable[[], None], seconds: float) -> None:
        """Make the call, and raise what it raises; `HangingCallError` if it does not return."""
        self.finish(self.begin(what), seconds)

    def begin(self, what: Callable[[], None]) -> Answer:
        """Have the call made while we go on; `finish` has to follow."""
        answer: Answer = queue.SimpleQueue()
        self._calls.put((what, answer))
        return answer

    def finish(
        self, answer: Answer, seconds: float, *, meanwhile: Callable[[], bool] | None = None
    ) -> None:
        """Wait for a call that has begun, and raise what it raises.

        Until it returns, `meanwhile` is called: work in small pieces, False when there is no more.
        """
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
