"""Waiting for a condition instead of sleeping for luck."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T],
    timeout: float = 30,
    describe: str | Callable[[], object] = "",
    *,
    interval: float = 0.02,
) -> T:
    """The condition's first true value; fails with `describe` (text, or what to call) without one.

    An AssertionError inside the condition counts as "not yet", and is shown if time runs out.
    """
    deadline = time.monotonic() + timeout
    failure: AssertionError | None = None
    while True:
        try:
            value = condition()
            failure = None
            if value:
                return value
        except AssertionError as error:
            failure = error
            value = None  # type: ignore[assignment]
        if time.monotonic() > deadline:
            told = describe() if callable(describe) else describe or condition
            raise AssertionError(
                f"not within {timeout} s: {told}; last value: {value!r}"
            ) from failure
        time.sleep(interval)
