"""When a failed message comes back, and what it looks like then."""

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from punctual_worker.client import Backoff
from punctual_worker.retries import attempt_of, dead_letter_record, retry_request


@dataclass
class Message:
    """As a consumer gets one."""

    content: list[tuple[str, bytes | None]] = field(default_factory=list)
    name: str = "orders"

    def topic(self) -> str:
        return self.name

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 7

    def key(self) -> bytes:
        return b"\xff"

    def value(self) -> bytes | None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self.content


def test_pauses_grow_to_the_longest() -> None:
    backoff = Backoff(first=timedelta(seconds=3), factor=10, most=timedelta(minutes=10))
    assert [backoff.pause(n).total_seconds() for n in (1, 2, 3, 4, 400)] == [3, 30, 300, 600, 600]


@pytest.mark.parametrize(
    "wrong", [{"first": timedelta(0)}, {"factor": 0.5}, {"attempts": 0}, {"spread": -1}]
)
def test_a_backoff_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="want a first pause above 0"):
        Backoff(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "attempt"),
    [(None, 1), (b"3", 3), (b"0", 1), (b"x", 1), (b"\xff", 1), (b"9" * 30, 1), (b"-2", 1)],
)
def test_the_header_counts_tries(given: bytes | None, attempt: int) -> None:
    assert attempt_of(Message([("retry-attempt", given)])) == attempt
    assert attempt_of(Message()) == 1


def test_a_retry_keeps_everything_but_the_count_and_our_traces() -> None:
    message = Message(
        [
            ("a", b"1"),
            ("retry-attempt", b"2"),
            ("x-scheduler-source", b"p/0/0"),
            ("a", None),
            ("x-scheduler-request-id", b"retry/orders/1/1"),
        ]
    )
    request = retry_request(message, 2, Backoff(spread=0.5))
    assert (request.key, request.value) == (b"\xff", None)
    assert request.headers == [
        ("a", b"1"),
        ("a", None),
        ("retry-attempt", b"3"),
        ("x-scheduler-action", b"REPLACE"),
        ("x-scheduler-deliver-to", b"orders"),
        ("x-scheduler-delay", b"2000ms"),
        ("x-scheduler-request-id", b"retry/orders/2/7"),
        ("x-scheduler-spread", b"1000ms"),
    ]


def test_an_id_is_never_too_long() -> None:
    request = retry_request(Message(name="x" * 249), 1, Backoff())
    given = dict(request.headers)["x-scheduler-request-id"]
    assert given is not None
    assert len(given) <= 255


def test_a_dead_letter_says_why_and_whence() -> None:
    letter = dead_letter_record(Message([("a", b"1"), ("retry-attempt", b"5")]), 5, reason="boom")
    assert letter.headers == [
        ("a", b"1"),
        ("retry-attempt", b"5"),
        ("retry-source", b"orders/2/7"),
        ("retry-reason", b"boom"),
    ]


def test_a_consumer_loads_neither_spark_nor_rocksdb() -> None:
    program = (
        "import sys, punctual_worker.client;"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'rocksdict', 'py4j')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
