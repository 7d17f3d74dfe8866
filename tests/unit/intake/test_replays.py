"""What has been rejected already is not rejected again; everything else goes its way."""

import random

from punctual_worker.intake import offset_sets, pipeline
from punctual_worker.intake.offset_sets import Offsets, contains
from pyspark.sql import SparkSession
from support.request_rules import PREFIX, Request
from support.routing import route, rules

GOOD = ((PREFIX + "deliver-to", b"a"), (PREFIX + "deliver-at", b"2027-01-01T00:00:00Z"))
BAD = ((PREFIX + "deliver-to", b"a"),)


def request(partition: int, offset: int, headers: tuple[tuple[str, bytes | None], ...]) -> Request:
    return Request(partition, offset, 1_700_000_000_000, b"k", b"v", headers)


def rejected(first: int, *offsets: int) -> Offsets:
    found = Offsets(first)
    assert all(found.add(offset) for offset in offsets)
    return found


def test_only_the_very_coordinates_are_left_out(spark: SparkSession) -> None:
    generator = random.Random(1)
    first = {0: 0, 3: 10_000_000_000}
    chosen = {n: sorted(generator.sample(range(at, at + 300), 40)) for n, at in first.items()}
    already = {n: rejected(at, *chosen[n]) for n, at in first.items()} | {5: Offsets(7)}
    asked = [
        (n, offset) for n in (0, 1, 3, 5) for at in first.values() for offset in range(at, at + 320)
    ]
    requests = [request(n, offset, BAD) for n, offset in asked]
    sources = [
        dict(one.headers)[PREFIX + "source"] for one in route(spark, requests, rules(), already)
    ]
    expected = [
        f"test-schedule-requests/{n}/{offset}".encode()
        for n, offset in asked
        if offset not in chosen.get(n, ())
    ]
    assert sources == expected


def test_an_accepted_request_is_never_left_out(spark: SparkSession) -> None:
    # the rules may have changed since it was rejected
    already = {0: rejected(5, 5, 6)}
    requests = [request(0, 5, GOOD), request(0, 6, BAD), request(0, 7, GOOD)]
    assert [one.key for one in route(spark, requests, rules(), already)] == [b"0/0/5", b"0/0/7"]


def test_what_is_judged_is_judged_once(spark: SparkSession) -> None:
    records = spark.createDataFrame(
        [],
        "topic string, partition int, offset bigint, timestamp timestamp, key binary, "
        "value binary, headers array<struct<key:string,value:binary>>",
    )
    plain = pipeline.route(records, rules())
    filtered = pipeline.route(records, rules(), already={0: rejected(0, 1)})
    turned_round = [
        str(one._jdf.queryExecution().optimizedPlan()).count("reverse(headers")
        for one in (plain, filtered)
    ]
    assert turned_round == [1, 1]


def test_a_bit_per_offset_and_no_more_than_so_many() -> None:
    found = Offsets(100)
    assert found.add(99)
    assert not found.bits
    assert found.add(100)
    assert found.add(100 + offset_sets.MOST_BITS - 1)
    assert len(found.bits) == offset_sets.MOST_BITS // 8
    assert not found.add(100 + offset_sets.MOST_BITS)
    assert found.end == 101 + offset_sets.MOST_BITS


def test_nothing_rejected_costs_nothing() -> None:
    assert contains({}) is None
    assert contains({0: Offsets(3)}) is None
