"""Thousands of random and half-valid requests: Spark's verdict is the independent oracle's."""

import os
import zlib

import pytest
from punctual_worker.contract.actions import PLAN_FIELDS, PLAN_VERSION, decode_plan, encode_plan
from punctual_worker.intake.rules import Rules
from pyspark.sql import SparkSession
from support import routing
from support.request_generator import RequestGenerator
from support.request_rules import PREFIX, STALE, Request, Verdict, World, judge
from support.routing import Routed, route, rules

OWN = frozenset(
    f"test-schedule-{name}" for name in ("requests", "actions", "rejections", "history")
)
WORLDS = {
    "as it comes": (World(OWN), rules()),
    "allow-list and short horizon": (
        World(OWN, allowed=("orders.*", "a", "x*"), horizon_days=30),
        rules(destinations=["orders.*", "a", "x*"], horizon_days=30),
    ),
}
BATCH = 2_500
LONG = int(os.environ.get("PUNCTUAL_FUZZ_REQUESTS", "0"))


def check(spark: SparkSession, *, seed: int, count: int, world: World, rules: Rules) -> None:
    generator = RequestGenerator(seed)
    requests = [generator.request(offset) for offset in range(count)]
    accepted = 0
    for request, routed in zip(requests, route(spark, requests, rules), strict=True):
        verdict = judge(request, world)
        assert routed.is_action == (not verdict.codes), (request, verdict, routed)
        if routed.is_action:
            accepted += 1
            check_action(request, verdict, routed)
        else:
            assert routed.codes == verdict.codes, (request, verdict, routed)
            check_rejection(request, routed)
    assert count // 10 < accepted < count * 9 // 10, "the generator has become one-sided"


def check_action(request: Request, verdict: Verdict, routed: Routed) -> None:
    expected = {name: "" for name in PLAN_FIELDS} | {"version": PLAN_VERSION} | verdict.plan
    assert routed.plan == "|".join(expected[name] for name in PLAN_FIELDS), (request, verdict)
    assert encode_plan(decode_plan(routed.plan.encode())).decode() == routed.plan
    key = f"0/{request.partition}/{request.offset}"
    assert routed.key == key.encode()
    schedule_id = verdict.plan["request_id"] or key
    assert routed.partition == zlib.crc32(schedule_id.encode()) % 8
    assert routed.value == (request.value or b"")
    assert routed.headers[:-1] == [*without_stale(request), (PREFIX + "user-key", request.key)]


def check_rejection(request: Request, routed: Routed) -> None:
    source = f"{routing.REQUESTS}/{request.partition}/{request.offset}".encode()
    assert routed.partition is None
    assert routed.key == (source if request.key is None else request.key)
    assert routed.value == request.value
    assert routed.headers[:-4] == without_stale(request)
    names = [name.removeprefix(PREFIX) for name, _ in routed.headers[-4:]]
    assert names == ["error-code", "error", "source", "rejected-at"]
    assert routed.headers[-2][1] == source


def without_stale(request: Request) -> list[tuple[str, bytes | None]]:
    stale = {PREFIX + short for short in STALE}
    return [(name, value) for name, value in request.headers if name not in stale]


@pytest.mark.parametrize("kind", WORLDS)
def test_every_request_is_an_action_or_a_rejection_as_the_oracle_says(
    spark: SparkSession, kind: str
) -> None:
    world, its_rules = WORLDS[kind]
    check(spark, seed=20261118, count=BATCH, world=world, rules=its_rules)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="minutes long: make fuzz")
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_requests_as_the_oracle_says(spark: SparkSession) -> None:
    world, its_rules = WORLDS["as it comes"]
    for seed in range(0, LONG, BATCH):
        check(spark, seed=seed, count=BATCH, world=world, rules=its_rules)
