"""Where a delivery goes when a partition key, and not the record's key, chooses the partition."""

import zlib

import pytest
from punctual_worker.contract import actions
from punctual_worker.contract.actions import Headers, Plan, Verb
from punctual_worker.dispatch.deliveries import (
    HEADERS,
    WAY,
    deliver,
    entry_of,
    is_odd,
    pack,
    unpack,
)
from punctual_worker.dispatch.entries import Entry

KEYED: Headers = [("a", b"1"), ("schedule_target_partition_key", b"tenant-1")]


def place(flags: str, headers: Headers) -> int | None:
    plan = Plan(Verb.REPLACE, 1_000, "somewhere", "id", flags=flags, source="karafka")
    entry = Entry(b"0a0b0c0d/0/7", plan, b"user-7", b"v", headers)
    made = deliver(entry, requests_topic="requests", trace=True)
    (delivery,) = unpack([pack(made)])
    assert delivery == made
    assert entry_of(delivery) == entry
    sent = delivery[HEADERS]
    assert list(sent.items() if isinstance(sent, dict) else sent) == headers
    assert not is_odd(delivery)  # a burst of them goes together, as one of others does
    return delivery[WAY]


def test_it_is_the_hash_of_librdkafkas_default_partitioner() -> None:
    assert place("bh", KEYED) == zlib.crc32(b"tenant-1")


def test_of_a_repeated_header_the_last_counts_as_in_intake() -> None:
    twice: Headers = [*KEYED, ("schedule_target_partition_key", b"tenant-2")]
    assert place("bh", twice) == zlib.crc32(b"tenant-2")


@pytest.mark.parametrize("empty", [b"", None])
def test_an_empty_one_chooses_nothing(empty: bytes | None) -> None:
    assert place("bh", [("schedule_target_partition_key", empty)]) is None


def test_what_was_taken_in_before_is_placed_as_before() -> None:
    assert place("b", KEYED) is None


def test_pausing_keeps_it() -> None:
    plan = actions.decode_plan(b"1|R|1000|t|||bh|||karafka||||id")
    assert plan.pause().placed
    assert plan.pause().resume() == plan


def test_such_a_header_of_a_native_request_is_the_users_own() -> None:
    entry = Entry(b"0/0/7", Plan(Verb.ADD, 1_000, "somewhere"), b"k", b"v", KEYED)
    assert deliver(entry, requests_topic="requests", trace=True)[WAY] is None
