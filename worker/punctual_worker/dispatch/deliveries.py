"""Messages for their destinations, ready to be handed over, and the rows that keep them. Pure.

A message is made when its request is taken in, not when it is due, and kept in the form in which
Kafka's client takes it. So thousands of rows become thousands of messages with one call; what only
decisions need of the request stays packed until somebody asks.
"""

import zlib
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import ormsgpack

from punctual_worker.contract import actions, dialects, headers, times
from punctual_worker.dispatch.entries import Entry, source_of, user_headers

Delivery = list[Any]
"""A message and what belongs to it, by the places below. A list, because that is what a row
becomes without a further step for each message."""
DESTINATION: Final = 0
VALUE: Final = 1
KEY: Final = 2
HEADERS: Final = 3
"""A dict, which the client reads fastest; or a list of pairs where that would lose something."""
WANTED_MS: Final = 4
"""When the user wants it, which may differ from when it is due."""
WAY: Final = 5
"""None if nothing but the destination decides about the message and its key about the partition;
a number if the partition is chosen by this hash instead; else, for whatever is decided one by one,
a tuple of partition and hash, either of which may be None."""
REQUEST_ID: Final = 6
_REST: Final = 7

destination_of: Final = itemgetter(DESTINATION)
wanted_ms_of: Final = itemgetter(WANTED_MS)
_way_of: Final = itemgetter(WAY)

_PAIRS: Final = "pairs"
"""Way of a row that is ordinary, but for headers that are pairs: None once these are tuples."""
_ARRAY: Final = b"\xdd"
"""MessagePack's array with a count of four bytes."""


def deliver(entry: Entry, *, requests_topic: str, trace: bool) -> Delivery:
    """The delivered record, as the contract describes it. Made for each request: no attribute is
    looked up twice."""
    key, plan, user_key, value, its_headers = entry
    _, wanted_ms, destination, request_id, partition, expires_ms, flags, _, asked_ms, *_ = plan
    if asked_ms is not None:
        wanted_ms = asked_ms
    sent = user_headers(entry)
    place = None
    if flags and plan.bare:
        place = _place_of(entry) if plan.placed else None
    elif trace:
        if request_id:
            sent.append((headers.REQUEST_ID, request_id.encode()))
        sent.append((headers.SCHEDULED_FOR, _written_ms(wanted_ms)))
        sent.append((headers.SOURCE, source_of(entry, requests_topic)))
    plain = partition is None and expires_ms is None and not plan.cron
    return [
        destination,
        value,
        user_key,
        _by_name(sent),
        wanted_ms,
        place if plain else (partition, place),
        request_id,
        ormsgpack.packb((key, tuple(plan), its_headers)),
    ]


def _by_name(pairs: actions.Headers) -> dict[str, bytes | None] | actions.Headers:
    """As a dict, unless a name is repeated."""
    named = dict(pairs)
    return named if len(named) == len(pairs) else pairs


def entry_of(delivery: Delivery) -> Entry:
    """The entry that is delivered."""
    key, plan, its_headers = ormsgpack.unpackb(delivery[_REST])
    plan[0] = actions.VERBS[plan[0]]
    return Entry(
        key,
        tuple.__new__(actions.Plan, plan),  # a third of the time of its own constructor
        delivery[KEY],
        delivery[VALUE],
        list(map(tuple, its_headers)),
    )


def pack(delivery: Delivery) -> bytes:
    """What the local store keeps of it, beside its order key."""
    if delivery[WAY] is None and isinstance(delivery[HEADERS], list):
        delivery = [*delivery]
        delivery[WAY] = _PAIRS
    return ormsgpack.packb(delivery)


def unpack(rows: Sequence[bytes]) -> list[Delivery]:
    """Undo `pack`, for any number of rows at one go."""
    found: list[Delivery] = ormsgpack.unpackb(
        b"".join((_ARRAY, len(rows).to_bytes(4, "big"), *rows))
    )
    if any_unusual(found):
        for delivery in found:
            if delivery[WAY] is not None:
                _complete(delivery)
    return found


def any_unusual(deliveries: Sequence[Delivery]) -> bool:
    """Whether any of them has a way of its own; far quicker than to look at each."""
    return list(map(_way_of, deliveries)).count(None) < len(deliveries)


def is_odd(delivery: Delivery) -> bool:
    """Whether more than its destination decides about it."""
    return type(delivery[WAY]) is tuple


def row_bytes(delivery: Delivery) -> int:
    """About as many as its row has: the headers are in it twice."""
    return len(delivery[VALUE] or b"") + 2 * len(delivery[_REST])


def _complete(delivery: Delivery) -> None:
    if isinstance(delivery[HEADERS], list):
        delivery[HEADERS] = list(map(tuple, delivery[HEADERS]))
    if delivery[WAY] == _PAIRS:
        delivery[WAY] = None
    elif isinstance(delivery[WAY], list):
        delivery[WAY] = tuple(delivery[WAY])


@lru_cache(maxsize=4096)
def _written_ms(ms: int) -> bytes:
    """Many messages are due at the same time."""
    return times.format_ms(ms).encode()


def _place_of(entry: Entry) -> int | None:
    """As librdkafka's default partitioner hashes: what Karafka's producer hands the key to."""
    key = dict(entry.headers).get(dialects.KARAFKA_PARTITION_KEY)
    return zlib.crc32(key) if key else None
