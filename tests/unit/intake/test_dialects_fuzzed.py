"""Half-valid requests of other schedulers: Spark's verdict is the independent oracle's."""

import random

import pytest
from punctual_worker.contract.dialects import Dialect
from pyspark.sql import SparkSession
from support import dialects
from support.dialect_routing import ALL, DUE_S, NOW_S, OLD, delivery, routed
from support.dialect_rules import rule
from support.kafka import Record
from support.request_rules import Request, World

OWN = frozenset(
    {OLD, *(f"test-schedule-{n}" for n in ("requests", "actions", "rejections", "history"))}
)
STRICT = (Dialect.MESSAGE_SCHEDULER, Dialect.KARAFKA, Dialect.KMS_AVRO)
"""Those of which the oracle knows every record; Spark reads some JSON that Python's library does
not, such as an object with something behind it."""


def half_valid(rnd: random.Random, dialect: Dialect) -> Record:
    topic, key = rnd.choice(["t", "u", "orders.eu", "a/b", OLD]), "k"
    seconds = rnd.choice([0, 1, DUE_S, DUE_S + 1, DUE_S * 1000, 10**14, -1])
    kms = {"topic": topic, "key": b"\xff", "headers": rnd.choice([None, {}, {"a": b"1"}])}
    kms["time_ms"] = rnd.choice([seconds, seconds * 1000, -(2**63)])
    value, partition = rnd.choice([None, b"", b"v"]), rnd.choice([None, 0, 7, "x"])
    one = {
        Dialect.MESSAGE_SCHEDULER: dialects.etf1(b"i", value, epoch=seconds, topic=topic, key=key),
        Dialect.KARAFKA: dialects.karafka(
            b"i",
            value,
            epoch=seconds,
            topic=topic,
            key=key,
            partition=partition,
            partition_key=rnd.choice([None, "", "tenant"]),
        ),
        Dialect.KMS_JSON: dialects.kms_json(b"i", value, **kms),  # type: ignore[arg-type]
        Dialect.KMS_AVRO: dialects.kms_avro(b"i", value, **kms),  # type: ignore[arg-type]
    }[dialect]
    odd = [b"[" * 5000, b'{"time": ' + b"9" * 2000 + b"}", b"\x02\x02t\xfe\xff\xff\xff\x0f"]
    if rnd.random() < 0.02:
        return Record(rnd.choice(odd), key=b"i")

    def mutated(content: bytes | None) -> bytes | None:
        if content is None or rnd.random() < 0.3:
            return rnd.choice([None, b"", rnd.randbytes(rnd.randrange(60))])
        at = rnd.randrange(len(content) + 1)
        return content[:at] + rnd.randbytes(rnd.randrange(4)) + content[at + rnd.randrange(3) :]

    headers = [(n, mutated(v) if rnd.random() < 0.1 else v) for n, v in one.headers]
    rnd.shuffle(headers)
    content = mutated(one.value) if rnd.random() < 0.4 else one.value
    return Record(content, key=mutated(one.key) if rnd.random() < 0.1 else one.key, headers=headers)


@pytest.mark.parametrize("dialect", ALL)
def test_every_record_is_an_action_or_a_rejection_as_the_oracle_says(
    spark: SparkSession, dialect: Dialect
) -> None:
    rnd = random.Random(20261118)
    records = [half_valid(rnd, dialect) for _ in range(1500)]
    accepted = 0
    for index, (record, result) in enumerate(
        zip(records, routed(spark, dialect, *records), strict=True)
    ):
        request = Request(
            *(2, 40 + index, NOW_S * 1000 + 999, record.key, record.value), tuple(record.headers)
        )
        ruling = rule(dialect, request, World(OWN))
        if ruling.unclear:
            continue
        if dialect in STRICT or not ruling.codes:
            assert result.is_action == (not ruling.codes), (record, ruling, result)
        if not result.is_action:
            assert result.value == record.value
            if dialect in (Dialect.MESSAGE_SCHEDULER, Dialect.KARAFKA):
                assert result.codes == ruling.codes, (record, ruling, result)
            continue
        accepted += 1
        if ruling.codes:
            continue
        plan, key, value, headers = delivery(result)
        if ruling.asked is None:
            assert plan.verb == "C", (record, result)
            continue
        asked = ruling.asked
        assert (plan.due_ms, plan.destination.encode()) == (ruling.due_ms, asked.to)
        assert (key, value) == (asked.key, asked.value), (record, result)
        numbered = asked.partition if not asked.partition_key else None
        assert plan.partition == (None if numbered is None else int(numbered)), (record, result)
        assert plan.placed == bool(asked.partition_key), (record, result)
        assert sorted(headers, key=str) == sorted(asked.headers, key=str)
    assert 150 < accepted < 1350, "the generator has become one-sided"
