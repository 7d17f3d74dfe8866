"""The embedded broker: real Kafka that comes and goes without leaving anything behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from punctual_worker.local.broker import BrokerError, EmbeddedBroker
from support.eventually import eventually
from support.kafka import Record, consume_committed, create_topic, produce


def test_what_goes_in_comes_out_byte_for_byte(broker: EmbeddedBroker, app_id: str) -> None:
    topic = create_topic(broker.bootstrap_servers, app_id, 3)
    sent = [
        Record(b"\xff\x00", b"\xfe", [("h", None), ("h", b""), ("h", b"\xfd")]),
        Record(None, b"k"),
        Record(b"v", None, partition=2),
    ]

    placed = produce(broker.bootstrap_servers, topic, sent)
    got = consume_committed(broker.bootstrap_servers, topic, 3)

    assert sorted(got, key=repr) == sorted(placed, key=repr)
    assert got == consume_committed(broker.bootstrap_servers, topic)


def test_a_mistyped_topic_is_not_created(broker: EmbeddedBroker, app_id: str) -> None:
    with pytest.raises(KafkaException):
        produce(
            broker.bootstrap_servers, app_id, [Record(b"v")], config={"message.timeout.ms": 2000}
        )

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
    assert app_id not in admin.list_topics(timeout=10).topics


def test_data_survive_a_stop_and_a_kill(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    try:
        broker.start()
        port = broker.port
        create_topic(broker.bootstrap_servers, "kept")
        produce(broker.bootstrap_servers, "kept", [Record(b"1")])
        broker.restart()
        produce(broker.bootstrap_servers, "kept", [Record(b"2")])
        broker.kill()
        assert not broker.is_running()
        broker.start()

        values = [r.value for r in consume_committed(broker.bootstrap_servers, "kept", 2)]
        assert values == [b"1", b"2"]
        assert broker.port == port
    finally:
        broker.stop()


def test_a_port_in_use_is_told_in_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"Port {port} on 127.0.0.1 cannot be used"):
            EmbeddedBroker(tmp_path, port).start()


def test_a_data_directory_in_use_is_told_in_a_sentence(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match="is in use by another broker"):
        EmbeddedBroker(broker.data_dir.parent).start()


def test_a_wrong_configuration_is_told_with_the_brokers_own_words(tmp_path: Path) -> None:
    wrong = EmbeddedBroker(tmp_path, extra_config={"num.io.threads": "many"})
    with pytest.raises(BrokerError, match=r"num\.io\.threads"):
        wrong.start()


def test_the_broker_dies_with_its_owner(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from punctual_worker.local.broker import EmbeddedBroker\n"
        "broker = EmbeddedBroker(pathlib.Path(sys.argv[1]))\n"
        "broker.start()\n"
        "print(broker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert psutil.pid_exists(pid)
        os.kill(owner.pid, signal.SIGKILL)

    eventually(lambda: not psutil.pid_exists(pid), 10, "the broker is gone")
