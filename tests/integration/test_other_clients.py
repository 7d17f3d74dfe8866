"""Clients that are not ours: a Java program with nothing but kafka-clients, run by plain `java`."""

import os
import subprocess
from pathlib import Path

import pytest
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.local.jars import jar_paths
from punctual_worker.local.java import find_java
from support.scheduler import RunningScheduler

PROGRAM = Path(__file__).parent / "java" / "ForeignClient.java"
MESSAGES = 25


def test_a_java_program_schedules_and_receives(
    broker: EmbeddedBroker, app_id: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("java")
    scheduler = RunningScheduler(broker.bootstrap_servers, app_id, folder)
    try:
        scheduler.start()
        destination = scheduler.new_destination("reminders", partitions=7)
        direct = scheduler.new_destination("direct", partitions=7)
        lines = _run_java(scheduler, destination, direct)
    finally:
        scheduler.stop()
    due = int(lines.pop().split()[1])
    rows = [line.split("\t") for line in lines]
    sent = {(key, value, place) for topic, key, value, place, *_ in rows if topic == direct}
    got = [row for row in rows if row[0] == destination]
    assert len(got) == MESSAGES == len(sent)
    # same key, same value, and the partition that Java's own producer chose
    assert {(key, value, place) for _, key, value, place, *_ in got} == sent
    assert all(int(timestamp) >= due for *_, timestamp, _ in got)
    assert {row[-1] for row in got} == {"content-type x-scheduler-scheduled-for x-scheduler-source"}


def _run_java(scheduler: RunningScheduler, destination: str, direct: str) -> list[str]:
    wanted = ("kafka-clients-4", "slf4j-api", "lz4-java", "snappy-java", "zstd-jni")
    class_path = [str(jar) for jar in jar_paths("broker") if jar.name.startswith(wanted)]
    done = subprocess.run(
        [
            *(str(find_java()), "-cp", os.pathsep.join(class_path), str(PROGRAM)),
            *(scheduler.bootstrap_servers, scheduler.topics.requests, destination, direct),
            str(MESSAGES),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
