"""The grammar of times and durations, spelling by spelling."""

import pytest
from punctual_worker.intake import times
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

NOON_MS = 1_794_960_000_000 + 43_200_000  # 2026-11-18T12:00:00Z

INSTANTS = {
    "2026-11-18T12:00:00.000Z": NOON_MS,
    "2026-11-18T12:00:00Z": NOON_MS,
    "2026-11-18T12:00:00": NOON_MS,
    "2026-11-18T12:00": NOON_MS,
    "2026-11-18T12:00Z": NOON_MS,
    "2026-11-18t12:00:00z": NOON_MS,
    "2026-11-18T12:00:00.5Z": NOON_MS + 500,
    "2026-11-18T12:00:00,5Z": NOON_MS + 500,
    "2026-11-18T12:00:00.001Z": NOON_MS + 1,
    "2026-11-18T12:00:00.0001Z": NOON_MS + 1,
    "2026-11-18T12:00:00.000000001Z": NOON_MS + 1,
    "2026-11-18T12:00:00.001000000Z": NOON_MS + 1,
    "2026-11-18T12:00:00.999999999Z": NOON_MS + 1000,
    "2026-11-18T17:30:00+05:30": NOON_MS,
    "2026-11-18T17:30+0530": NOON_MS,
    "2026-11-18T07:00:00.000-05": NOON_MS,
    "2026-11-18T07:00-05": NOON_MS,
    "2026-11-19T06:00:00+18:00": NOON_MS,
    "2026-11-17T18:00:00-1800": NOON_MS,
    "2026-11-18T12:00:00-00:00": NOON_MS,
    "2024-02-29T00:00:00Z": 1_709_164_800_000,
    "1970-01-01T00:00:00Z": 0,
    "1969-12-31T23:59:59.9999Z": 0,
    "9999-12-31T23:59:59.999Z": 253_402_300_799_999,
    "0001-01-01T00:00:00Z": -62_135_596_800_000,
}
NO_INSTANTS = [
    *("", " ", "now", "1794996000", "1794996000000", "2026-11-18", "12:00", "2026", "2026-11"),
    *("2026-11-18 12:00:00Z", "2026-11-18T12", "2026-11-18T1200Z", "20261118T120000Z"),
    *("2026-11-18T24:00:00Z", "2026-11-18T23:59:60Z", "2026-11-18T12:60:00Z"),
    *("2026-02-30T12:00:00Z", "2025-02-29T12:00Z", "2026-11-31T12:00:00Z"),
    *("2026-13-01T12:00:00Z", "2026-00-01T12:00:00Z", "2026-11-00T12:00:00Z"),
    *(
        "10000-01-01T00:00:00Z",
        "+10000-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "-001-01-01T00:00Z",
    ),
    *("26-11-18T12:00:00Z", "2026-1-8T12:00:00Z", "2026-11-18T1:00:00Z", "2026-W47-3T12:00Z"),
    *("2026-11-18T12:00:00.Z", "2026-11-18T12:00:00.1234567890Z", "2026-11-18T12:00.5Z"),
    *("2026-11-18T12:00:00+18:01", "2026-11-18T12:00:00+19:00", "2026-11-18T12:00:00+5:30"),
    *("2026-11-18T12:00:00+05:60", "2026-11-18T12:00:00+05:", "2026-11-18T12:00:00+05:30:00"),
    *("2026-11-18T12:00:00 Z", "2026-11-18T12:00:00UTC", "2026-11-18T12:00:00[Europe/Berlin]"),
    *(" 2026-11-18T12:00:00Z", "2026-11-18T12:00:00Z ", "2026-11-18T12:00:00Z\n"),
    *("2026-11-18T12:00:00ZZ", "٢٠٢٦-11-18T12:00:00Z", "2026\u221211\u221218T12:00:00Z"),
    *("9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"),
]
HOUR = 3_600_000
DURATIONS = {
    "0s": 0,
    "250ms": 250,
    "90s": 90_000,
    "15m": 900_000,
    "2h": 2 * HOUR,
    "1d": 24 * HOUR,
    "007s": 7_000,
    "9999999999d": 9_999_999_999 * 24 * HOUR,
    "999999999999999ms": 999_999_999_999_999,
    "PT15M": 900_000,
    "pt15m": 900_000,
    "P1DT2H": 26 * HOUR,
    "P1D": 24 * HOUR,
    "P2W": 14 * 24 * HOUR,
    "P1W1DT1H1M1S": 8 * 24 * HOUR + HOUR + 61_000,
    "PT0.5S": 500,
    "PT0,5S": 500,
    "PT0.0001S": 1,
    "PT1.000000001S": 1_001,
    "PT0S": 0,
    "PT36H": 36 * HOUR,
    "P9999999999WT9999999999S": 9_999_999_999 * (7 * 24 * HOUR + 1000),
}
NO_DURATIONS = [
    *(
        "",
        " ",
        "15",
        "m",
        "15 m",
        "15min",
        "15M",
        "90S",
        "1w",
        "1y",
        "-15m",
        "+15m",
        "1.5h",
        "15m ",
    ),
    *(
        "P",
        "PT",
        "P1",
        "P1DT",
        "P1Y",
        "P1M",
        "P1Y2M",
        "-PT15M",
        "PT-15M",
        "P-1D",
        "+PT15M",
        "PT1.5H",
    ),
    *("P0.5D", "PT.5S", "PT1.S", "PT0.1234567890S", "PT15M\n", "1d\n", "P1H", "PT1D", "PT1M1H"),
    *(
        "12345678901s",
        "1234567890123456ms",
        "PT12345678901S",
        "15m15m",
        "1h30m",
        "0x10s",
        "\u0663s",
    ),
]


def evaluate(spark: SparkSession, function, texts):  # type: ignore[no-untyped-def]
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    return [row[0] for row in frame.select(function(sf.col("text"))).collect()]


def test_every_legal_instant_is_read_and_rounded_up_to_the_millisecond(spark: SparkSession) -> None:
    found = evaluate(spark, times.instant_ms, INSTANTS)
    assert dict(zip(INSTANTS, found, strict=True)) == INSTANTS


def test_whatever_else_looks_like_an_instant_is_none(spark: SparkSession) -> None:
    found = evaluate(spark, times.instant_ms, NO_INSTANTS)
    assert {t: ms for t, ms in zip(NO_INSTANTS, found, strict=True) if ms is not None} == {}


def test_every_legal_duration_is_read_without_overflow(spark: SparkSession) -> None:
    found = evaluate(spark, times.duration_ms, DURATIONS)
    assert dict(zip(DURATIONS, found, strict=True)) == DURATIONS


def test_whatever_else_looks_like_a_duration_is_none(spark: SparkSession) -> None:
    found = evaluate(spark, times.duration_ms, NO_DURATIONS)
    assert {t: ms for t, ms in zip(NO_DURATIONS, found, strict=True) if ms is not None} == {}


@pytest.mark.parametrize("function", [times.instant_ms, times.duration_ms])
def test_nothing_in_is_nothing_out(spark: SparkSession, function) -> None:  # type: ignore[no-untyped-def]
    assert evaluate(spark, function, [None]) == [None]
