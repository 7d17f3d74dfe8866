"""Each code of the contract, its sentence, and the records that come out."""

import re
import zlib

import pytest
from punctual_worker.contract.actions import decode_plan
from pyspark.sql import SparkSession
from support.request_rules import PREFIX, Request
from support.routing import Routed, route, rules

NOW = 1_794_996_000_000
GOOD = {"deliver-to": b"reminders", "deliver-at": b"2026-11-19T12:00:00Z"}
BAD: list[tuple[str, dict[str, bytes | None], list[str]]] = [
    ("unknown-action", {**GOOD, "action": b"DELETE"}, ["action is 'DELETE'", "CANCEL, PAUSE or"]),
    ("unknown-action", {**GOOD, "action": b""}, ["action is empty"]),
    ("unknown-action", {**GOOD, "action": None}, ["action has a null value"]),
    ("unknown-header", {**GOOD, "expire-at": b"x"}, ["x-scheduler-expire-at", "expires-at"]),
    ("unknown-header", {**GOOD, "plan": b"1|A|0|x"}, ["x-scheduler-plan"]),
    ("missing-deliver-to", {"delay": b"1s"}, ["deliver-to is missing"]),
    ("missing-deliver-at", {"deliver-to": b"a"}, ["deliver-at is missing", "delay", "cron"]),
    ("missing-request-id", {**GOOD, "action": b"REPLACE"}, ["request-id is missing"]),
    ("missing-request-id", {"action": b"cancel"}, ["request-id is missing"]),
    ("missing-request-id", {**GOOD, "action": b"PAUSE"}, ["request-id is missing"]),
    ("missing-request-id", {"action": b"Resume"}, ["request-id is missing"]),
    ("invalid-request-id", {"action": b"PAUSE", "request-id": b""}, ["request-id is empty"]),
    ("invalid-deliver-at", {**GOOD, "deliver-at": b"1794996000"}, ["'1794996000'", "Digits alone"]),
    ("invalid-deliver-at", {**GOOD, "deliver-at": None}, ["null value", "ISO 8601"]),
    ("invalid-delay", {"deliver-to": b"a", "delay": b"15 min"}, ["'15 min'", "PT15M"]),
    ("invalid-cron", {"deliver-to": b"a", "cron": b"* * *"}, ["'* * *'", "five or six"]),
    ("invalid-cron", {"deliver-to": b"a", "cron": b"* * * * a|b"}, ["a|b"]),
    (
        "invalid-cron",
        {"deliver-to": b"a", "cron": b"* * * * *", "misfire": b"x"},
        ["misfire is 'x'"],
    ),
    ("invalid-cron", {**GOOD, "misfire": b"once"}, ["misfire is there without x-scheduler-cron"]),
    ("invalid-timezone", {"deliver-to": b"a", "cron": b"* * * * *", "timezone": b"a b"}, ["'a b'"]),
    ("invalid-timezone", {**GOOD, "timezone": b"UTC"}, ["timezone is there without"]),
    ("invalid-deliver-to", {**GOOD, "deliver-to": b"a/b"}, ["deliver-to is 'a/b'"]),
    ("invalid-deliver-to", {**GOOD, "deliver-to": b""}, ["deliver-to is empty"]),
    ("invalid-deliver-partition", {**GOOD, "deliver-partition": b"-1"}, ["'-1'"]),
    ("invalid-expires-at", {**GOOD, "expires-at": b"tomorrow"}, ["expires-at is 'tomorrow'"]),
    ("invalid-spread", {**GOOD, "spread": b"5"}, ["spread is '5'"]),
    ("invalid-request-id", {**GOOD, "request-id": b"x" * 256}, ["x" * 80 + "…", "255 bytes"]),
    ("conflicting-times", {**GOOD, "delay": b"1s"}, ["more than one"]),
    ("deliver-at-too-far", {**GOOD, "deliver-at": b"2127-01-01T00:00Z"}, ["too far", "36525 days"]),
    ("deliver-at-too-far", {"deliver-to": b"a", "delay": b"9999999999h"}, ["9999999999h"]),
    ("destination-not-allowed", {**GOOD, "deliver-to": b"test-schedule-actions"}, ["not allowed"]),
    ("destination-not-allowed", {**GOOD, "deliver-to": b"__consumer_offsets"}, ["not allowed"]),
    ("not-utf8", {**GOOD, "request-id": b"\xff\xfe"}, ["request-id is not UTF-8", "FFFE"]),
]


def request(
    headers: dict[str, bytes | None],
    *,
    offset: int = 7,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp_ms: int = NOW,
    others: tuple[tuple[str, bytes | None], ...] = (),
) -> Request:
    named = tuple((PREFIX + short, value) for short, value in headers.items())
    return Request(3, offset, timestamp_ms, key, value, named + others)


def only(spark: SparkSession, one: Request, **settings: object) -> Routed:
    (routed,) = route(spark, [one], rules(**settings))  # type: ignore[arg-type]
    return routed


def test_every_fault_has_its_code_and_a_sentence_that_names_it(spark: SparkSession) -> None:
    out = route(spark, [request(headers) for _, headers, _ in BAD], rules())
    for (code, headers, parts), routed in zip(BAD, out, strict=True):
        assert not routed.is_action, headers
        assert routed.codes == {code}, headers
        for part in parts:
            assert part in routed.sentences, (headers, routed.sentences)


def test_several_faults_are_all_told(spark: SparkSession) -> None:
    routed = only(spark, request({"deliver-to": b"\xff", "delay": b"x", "expires-at": b"y"}))
    assert routed.codes == {"not-utf8", "invalid-delay", "invalid-expires-at"}
    assert all(name in routed.sentences for name in ("deliver-to", "delay", "expires-at"))


@pytest.mark.parametrize(("action", "verb"), [("CANCEL", "C"), ("PAUSE", "P"), ("RESUME", "U")])
def test_what_is_about_another_request_does_not_look_at_what_it_does_not_use(
    spark: SparkSession, action: str, verb: str
) -> None:
    about = {"action": action.encode(), "request-id": b"r|1"}
    routed = only(spark, request({**about, "deliver-at": b"\xff", "spread": b"x"}, value=None))
    assert routed.plan == f"1|{verb}|0||||n|||||||r|1"
    assert routed.partition == zlib.crc32(b"r|1") % 8
    assert not decode_plan(routed.plan.encode()).verb.delivers


def test_the_last_of_a_repeated_header_counts(spark: SparkSession) -> None:
    again = ((PREFIX + "deliver-to", b"second"), ("u", b"1"), ("u", b"1"))
    routed = only(spark, request(GOOD, others=again))
    assert decode_plan(routed.plan.encode()).destination == "second"
    assert routed.headers[2:5] == list(again)


def test_a_spread_moves_the_due_time_later_by_the_hash_of_the_id(spark: SparkSession) -> None:
    headers = {"deliver-to": b"a", "delay": b"1s", "spread": b"1h", "request-id": b"r9"}
    plan = decode_plan(only(spark, request(headers)).plan.encode())
    assert plan.due_ms == NOW + 1000 + zlib.crc32(b"r9") % 3_600_000


def test_a_delay_needs_a_record_timestamp(spark: SparkSession) -> None:
    routed = only(spark, request({"deliver-to": b"a", "delay": b"1s"}, timestamp_ms=-1))
    assert routed.codes == {"invalid-delay"}


def test_only_listed_destinations_are_allowed(spark: SparkSession) -> None:
    allowed = rules(destinations=["orders.*", "a+b", "x"])
    names = ["orders.", "orders.eu", "x", "ordersXeu", "xx", "test-schedule-requests"]
    out = route(spark, [request({**GOOD, "deliver-to": n.encode()}) for n in names], allowed)
    assert [routed.is_action for routed in out] == [True, True, True, False, False, False]


@pytest.mark.parametrize("need_keys", [True, False])
def test_a_rejection_without_a_key_gets_one_only_where_the_broker_wants_it(
    spark: SparkSession, need_keys: bool
) -> None:
    routed = only(spark, request({}, key=None), rejections_need_keys=need_keys)
    assert routed.key == (b"test-schedule-requests/3/7" if need_keys else None)


def test_what_does_not_fit_is_left_out_of_the_rejection_and_the_sentence_says_so(
    spark: SparkSession,
) -> None:
    limit = 1024 + 262_144
    tight = rules(request_max_bytes=1024)
    requests = [
        request(GOOD, value=b"v" * (limit - 4096 - 600)),  # fits
        request(GOOD, value=b"v" * (limit - 3000)),  # fits as a rejection only
        request(GOOD, value=b"v" * 2 * limit),
        request(GOOD, others=(("h", b"h" * 2 * limit),)),
        request(GOOD, key=b"k" * 2 * limit),
    ]
    out = route(spark, requests, tight)
    assert out[0].is_action
    assert all(routed.codes == {"too-large"} for routed in out[1:])
    assert (out[1].value, out[1].headers[:2]) == (requests[1].value, list(requests[1].headers))
    assert (out[2].value, out[2].key, len(out[2].headers)) == (b"", b"k", 6)
    for routed in out[3:]:
        assert (routed.value, len(routed.headers)) == (b"", 4)
        assert routed.key == b"test-schedule-requests/3/7"
    for routed in out[2:]:
        assert "left out" in routed.sentences
        assert "test-schedule-requests/3/7" in routed.sentences
        size = len(routed.key or b"") + sum(len(n) + len(v or b"") for n, v in routed.headers)
        assert size + len(routed.value or b"") < limit


def test_a_rejection_says_when_in_utc_to_the_millisecond(spark: SparkSession) -> None:
    _, moment = only(spark, request({})).headers[-1]
    assert moment is not None
    assert re.fullmatch(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)


def test_a_repaired_rejection_can_be_produced_again_as_it_is(spark: SparkSession) -> None:
    bad = only(spark, request({"deliver-to": b"a", "delay": b"x"}, others=(("u", None),)))
    repaired = tuple((n, b"1s" if n == PREFIX + "delay" else v) for n, v in bad.headers)
    again = only(spark, Request(3, 8, NOW, bad.key, bad.value, repaired))
    assert again.is_action
    assert [name for name, _ in again.headers[:-2]] == [
        PREFIX + "deliver-to",
        PREFIX + "delay",
        "u",
    ]
