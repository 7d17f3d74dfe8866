"""Trying again later: the request that brings a failed message back, and when to give up. Pure.

Key, value and the producer's headers stay as they are; one header, `retry-attempt`, counts. The
header recipe is the same in any language: docs/retries.md.
"""

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from punctual_worker.contract import headers as names
from punctual_worker.requesting import Request, delivery_request

ATTEMPT: Final = "retry-attempt"
"""Which try a delivered message is: 2 for the first retry. Absent on the first delivery."""
REASON: Final = "retry-reason"
SOURCE: Final = "retry-source"
"""On dead letters: why it was given up, and where it stood (`topic/partition/offset`)."""
_MAX_ID_BYTES: Final = 255


class Failed(Protocol):
    """A consumed message; confluent_kafka's is one."""

    def topic(self) -> str | None: ...  # noqa: D102
    def partition(self) -> int | None: ...  # noqa: D102
    def offset(self) -> int | None: ...  # noqa: D102
    def key(self) -> bytes | str | None: ...  # noqa: D102
    def value(self) -> bytes | str | None: ...  # noqa: D102
    def headers(self) -> list[tuple[str, bytes | str | None]] | None: ...  # noqa: D102


@dataclass(frozen=True)
class Backoff:
    """How long to wait after each failed try, and how often to try."""

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    most: timedelta = timedelta(hours=1)
    attempts: int = 5
    """Tries in all, the first delivery among them."""
    spread: float = 0.1
    """Part of the pause by which it may be longer, so that what failed together does not come back
    together."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.first <= timedelta(0) or self.factor < 1 or self.attempts < 1 or self.spread < 0:
            raise ValueError(
                f"{self}: want a first pause above 0, a factor of at least 1, at least 1 attempt "
                "and no negative spread"
            )

    def pause(self, attempt: int) -> timedelta:
        """How long to wait after this try, the first being 1."""
        try:
            return min(self.first * self.factor ** (attempt - 1), self.most)
        except OverflowError:
            return self.most


def attempt_of(message: Failed) -> int:
    """Which try this message is."""
    given = _headers(message).get(ATTEMPT)
    text = given.decode("utf-8", "replace") if isinstance(given, bytes) else given or ""
    return max(int(text), 1) if text.isdecimal() and text.isascii() and len(text) < 10 else 1


def retry_request(message: Failed, attempt: int, backoff: Backoff) -> Request:
    """A request to deliver the message again to its own topic, after this try has failed.

    Its id is where the message stands: a consumer that asks twice, because it crashed before it
    committed, has one retry pending and not two.
    """
    pause = backoff.pause(attempt)
    return delivery_request(
        message.topic() or "",
        _bytes(message.value()),
        action="REPLACE",
        delay=pause,
        spread=pause * backoff.spread if backoff.spread else None,
        request_id=_request_id(message),
        key=_bytes(message.key()),
        headers=[*_kept(message), (ATTEMPT, str(attempt + 1).encode())],
    )


def dead_letter_topic(message: Failed) -> str:
    """Where a message goes that is given up, if nothing else is said."""
    return f"{message.topic()}-dead-letter"


def dead_letter_record(message: Failed, attempt: int, *, reason: str) -> Request:
    """The message as it goes to the dead-letter topic."""
    told = [(ATTEMPT, str(attempt)), (SOURCE, _place(message)), (REASON, reason)]
    headers = [*_kept(message), *((name, text.encode()) for name, text in told if text)]
    return Request(_bytes(message.key()), _bytes(message.value()), headers)


def _kept(message: Failed) -> list[tuple[str, bytes | None]]:
    """The producer's headers: not the count of earlier tries, not our traces."""
    ours = (ATTEMPT, REASON, SOURCE)
    return [
        (name, _bytes(value))
        for name, value in message.headers() or []
        if name not in ours and not name.startswith(names.PREFIX)
    ]


def _headers(message: Failed) -> dict[str, bytes | str | None]:
    return dict(message.headers() or [])


def _place(message: Failed) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


def _request_id(message: Failed) -> str:
    request_id = f"retry/{_place(message)}"
    if len(request_id) <= _MAX_ID_BYTES:
        return request_id
    return f"retry/{hashlib.sha256(_place(message).encode()).hexdigest()}"


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
