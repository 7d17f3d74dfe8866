"""Intake alone: from request to action, how long one takes and how many go through.

Its limit is a bare Spark query that copies the same records. Both are stopped (SIGSTOP) while the
requests are written, so that each finds all of them there, has the machine to itself, and is
measured without its start: both have compiled what they run.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Self

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition
from punctual_worker.contract.actions import split_action_headers
from support.kafka import new_producer
from support.processes import Part

from bench.observing import EndOffsets, Reader, percentile
from bench.records import (
    PARTITIONS,
    BenchError,
    key_of,
    request_headers,
    value_of,
    write_requests,
)
from bench.report import Report
from bench.scale import Scale, in_words
from bench.stack import App, Stack

_DAY_MS: Final = 86_400_000
_PER_SECOND: Final = 100
_PATIENCE_SECONDS: Final = 600


class BareCopy:
    """The process of `bare_copy`."""

    def __init__(self, app: App, destination: str) -> None:
        folder = app.folder / "copy"
        folder.mkdir(parents=True)
        self._log = (folder / "copy.log").open("wb")
        program = str(Path(__file__).with_name("bare_copy.py"))
        self._process = subprocess.Popen(
            [sys.executable, program, app.servers, app.topics.app_id, str(folder), destination],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def freeze(self) -> None:
        """Stop it, its JVM too."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it, its JVM too."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()


class _Latency:
    """Requests sent at a steady pace, and when the action of each was there."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._producer = new_producer(app.servers)
        self._consumer = Consumer(
            {
                "bootstrap.servers": app.servers,
                "group.id": "bench-latency",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )
        self._sent: dict[bytes, float] = {}
        self._took_ms: list[float] = []

    def __enter__(self) -> Self:
        topic = self._app.topics.actions
        places = [TopicPartition(topic, n, OFFSET_END) for n in range(PARTITIONS)]
        self._consumer.assign(places)
        at_end = 0
        while at_end < PARTITIONS:
            message = self._consumer.poll(1)
            error = None if message is None else message.error()
            at_end += error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def run(self, seconds: int) -> list[float]:
        """Milliseconds that each took."""
        count = seconds * _PER_SECOND
        due_ms = round(time.time() * 1000) + _DAY_MS
        headers = request_headers("bench-nowhere", due_ms)
        start = time.time()
        deadline = start + seconds + 60
        while len(self._took_ms) < count:
            now = time.time()
            if now > deadline:
                raise BenchError(f"{len(self._sent)} requests did not become actions in time")
            number = len(self._took_ms) + len(self._sent)
            next_s = start + number / _PER_SECOND
            if number < count and now >= next_s:
                key = b"latency-%d" % number
                self._sent[key] = time.time()
                self._producer.produce(
                    self._app.topics.requests, value_of(number), key, headers=headers
                )
                self._producer.poll(0)
                continue
            self._look(max(next_s - now, 0) if number < count else 0.1)
        return self._took_ms

    def _look(self, seconds: float) -> None:
        message = self._consumer.poll(seconds)
        if message is None or message.error() is not None:
            return
        now = time.time()
        _, user_key, _ = split_action_headers(message.headers() or [])
        sent = self._sent.pop(user_key or b"", None)
        if sent is not None:
            self._took_ms.append((now - sent) * 1000)


def measure(stack: Stack, scale: Scale, report: Report) -> None:
    """Latency, then throughput beside the copy's."""
    with stack.app("intake") as app:
        copied = app.topic("copied")
        intake = app.intake()
        _write(app, scale.intake_warm_up)
        written = EndOffsets(app.servers, app.topics.actions, committed=False)
        written.wait_for(scale.intake_warm_up, patience=_PATIENCE_SECONDS)
        with _Latency(app) as latency:
            took_ms = latency.run(scale.latency_seconds)
        p50, p99 = percentile(took_ms, 0.5), percentile(took_ms, 0.99)
        report.add("request to action: p50", p50, "ms", aim="≤ 10 ms", met=p50 <= 10)
        report.add("request to action: p99", p99, "ms", aim="≤ 50 ms", met=p99 <= 50)
        copy = BareCopy(app, copied)
        app.run_beside(copy.kill)
        arrived = EndOffsets(app.servers, copied, committed=False)
        arrived.wait_for(scale.intake_warm_up + len(took_ms), patience=_PATIENCE_SECONDS)
        _throughput(app, scale, report, intake, written, copy, arrived)


def _throughput(
    app: App,
    scale: Scale,
    report: Report,
    intake: Part,
    written: EndOffsets,
    copy: BareCopy,
    arrived: EndOffsets,
) -> None:
    ours, bare = [], []
    count = scale.intake_requests
    intake.freeze()
    copy.freeze()
    for _ in range(scale.intake_rounds):
        _write(app, count)
        ours.append(_rate(intake, written, count))
        bare.append(_rate(copy, arrived, count))
    rate, limit = statistics.median(ours), statistics.median(bare)
    report.add(
        f"intake throughput, {in_words(count)} requests",
        rate,
        "requests/s",
        limit=limit,
        aim="≥ 0.75 of the limit",
        met=rate >= 0.75 * limit,
    )
    rejections = EndOffsets(app.servers, app.topics.rejections, committed=False).total()
    if rejections:
        raise BenchError(f"{rejections} requests were rejected")


def _rate(worker: Part | BareCopy, ends: EndOffsets, count: int) -> float:
    """Records per second, from being let go to the last record; stopped again afterwards."""
    before = ends.total()
    began = time.time()
    worker.thaw()
    ended = ends.wait_for(before + count, patience=_PATIENCE_SECONDS, every=0.02)
    time.sleep(1)  # nothing may follow
    worker.freeze()
    if (extra := ends.total() - before - count) > 0:
        raise BenchError(f"{extra} records more than requests")
    return count / (ended - began)


def _write(app: App, count: int) -> None:
    due_ms = round(time.time() * 1000) + _DAY_MS
    write_requests(
        app.servers, app.topics.requests, count=count, destination="bench-nowhere", due_ms=due_ms
    )


def measure_journey(stack: Stack, scale: Scale, report: Report) -> None:
    """From a request that is due at once to its delivery, through everything."""
    with stack.app("journey") as app:
        topic = app.topic("due-at-once")
        app.dispatcher()
        app.intake()
        producer = new_producer(app.servers)
        reader = Reader(app.servers, topic, from_end=True)
        took_ms = []
        for number in range(20 + scale.latency_seconds * 20):
            began = time.time()
            producer.produce(
                app.topics.requests,
                value_of(number),
                key_of(number),
                headers=request_headers(topic, round(began * 1000)),
            )
            producer.poll(0)
            seen = reader.read(1, patience=30, settle=0.02)
            if len(seen) != 1 or seen[0].number != number:
                raise BenchError(f"message {number} was to arrive once, and did {len(seen)} times")
            took_ms.append((seen[0].seen_s - began) * 1000)
        reader.close()
        took_ms = took_ms[20:]  # the first ones find everything cold
        p50, p99 = percentile(took_ms, 0.5), percentile(took_ms, 0.99)
        report.add("request to delivery, due at once: p50", p50, "ms")
        report.add("request to delivery, due at once: p99", p99, "ms")
