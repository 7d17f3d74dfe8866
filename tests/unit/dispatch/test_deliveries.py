"""Messages as the local store keeps them."""

import zlib

import pytest
from punctual_worker.contract.actions import Headers, Plan, Verb
from punctual_worker.dispatch.deliveries import (
    HEADERS,
    VALUE,
    WAY,
    Delivery,
    deliver,
    entry_of,
    is_odd,
    pack,
    row_bytes,
    unpack,
)
from punctual_worker.dispatch.entries import Entry

UNIQUE: Headers = [("z", b"\x00\xff"), ("a", None), ("\u00fc", b"")]
REPEATED: Headers = [*UNIQUE, ("z", b"2")]
PLAIN = Plan(Verb.ADD, 1_000, "somewhere", "id")


def made(plan: Plan, headers: Headers = UNIQUE, value: bytes | None = b"v") -> Delivery:
    entry = Entry(b"0/1/7", plan, b"k", value, headers)
    return deliver(entry, requests_topic="requests", trace=True)


@pytest.mark.parametrize("headers", [[], UNIQUE, REPEATED])
@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize(
    ("plan", "odd"),
    [
        (PLAIN, False),
        (PLAIN._replace(partition=0), True),
        (PLAIN._replace(expires_ms=2_000), True),
        (PLAIN._replace(cron="* * * * *"), True),
    ],
)
def test_a_row_becomes_the_message_that_it_was_made_of(
    plan: Plan, odd: bool, headers: Headers, value: bytes | None
) -> None:
    message = made(plan, headers, value)
    other = made(PLAIN)
    found = unpack([pack(other), pack(message), pack(other)])
    assert found == [other, message, other]
    assert type(found[1][HEADERS]) is type(message[HEADERS])
    assert type(found[1][WAY]) is type(message[WAY])
    assert (is_odd(found[1]), found[1][VALUE]) == (odd, value)
    assert entry_of(found[1]) == Entry(b"0/1/7", plan, b"k", value, headers)


def test_what_stands_in_stores_does_not_change_unnoticed() -> None:
    """If this fails, the store's format needs another number too: what was written before would be
    delivered as it was."""
    rows = [
        pack(made(plan, headers))
        for plan in (PLAIN, PLAIN._replace(partition=1, flags="b", attempt=2))
        for headers in ([], UNIQUE, REPEATED)
    ]
    assert zlib.crc32(b"".join(rows)) == 3318590966


def test_the_bytes_of_a_message_are_about_those_of_its_row() -> None:
    headers: Headers = [("big", b"x" * 5_000)]
    message = made(PLAIN, headers, b"y" * 3_000)
    assert row_bytes(message) == pytest.approx(len(pack(message)), rel=0.1)
