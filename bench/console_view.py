"""How fast the console's view is filled from Kafka and searched: prints figures, asserts nothing.

python bench/console_view.py 1000000
"""

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from punctual_worker.console.filters import Filters, Order
from punctual_worker.console.main import running
from punctual_worker.console.queries import Queries
from punctual_worker.console.reading import Reader
from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.contract.topics import topic_specs
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin

PARTITIONS = 8
WEEK_MS = 7 * 24 * 3_600_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        settings = Settings(
            bootstrap_servers=broker.bootstrap_servers,
            app_id="bench",
            data_dir=Path(folder),
            http_port=0,
        )
        start_ms = time.time_ns() // 1_000_000 + 3_600_000
        fill(settings, rows, start_ms)
        began, cpu = time.monotonic(), time.process_time()
        with running(settings) as url:
            wait_ready(url)
            took, used = time.monotonic() - began, time.process_time() - cpu
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            database = settings.data_dir / "console" / "bench" / "view.db"
            disk = sum(file.stat().st_size for file in database.parent.glob("view.db*"))
            print(
                f"{rows:,} rows in {took:.1f} s: {rows / took:,.0f} rows/s, "
                f"{used / rows * 1e6:.1f} us of CPU each; {disk / rows:.0f} "
                f"bytes of disk each; at most {peak} MB of memory"
            )
            search(Queries(Reader(database)), start_ms)


def fill(settings: Settings, rows: int, start_ms: int) -> None:
    specs = topic_specs(
        settings.topics, request_partitions=1, action_partitions=PARTITIONS, replication_factor=1
    )
    TopicAdmin({"bootstrap.servers": settings.bootstrap_servers}).ensure(specs)
    producer = Producer(
        {"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 20, "log_level": 2}
    )
    chance, value = random.Random(1), b"x" * 200
    for number in range(rows):
        request_id = f"order-{chance.randrange(10**9):09d}"
        due = start_ms + chance.randrange(WEEK_MS)
        plan = Plan(Verb.ADD, due, f"topic-{number % 20}", request_id)
        while True:
            try:
                producer.produce(
                    settings.topics.actions,
                    key=f"0/{number % 8}/{number // 8}",
                    value=value,
                    headers=actions.action_headers([], b"key", plan),
                    partition=actions.actions_partition(request_id.encode(), PARTITIONS),
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def wait_ready(url: str) -> None:
    import urllib.error
    import urllib.request

    while True:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=60):
                return
        except urllib.error.HTTPError as error:
            error.close()
            time.sleep(0.05)


def search(queries: Queries, start_ms: int) -> None:
    hour = 3_600_000
    questions: list[tuple[str, Callable[[], object]]] = [
        ("first page", lambda: queries.page(Filters())),
        ("last page", lambda: queries.page(Filters(), Order("due", True))),
        ("one id", lambda: queries.find("order-123456789")),
        ("id prefix, few", lambda: queries.page(Filters(id_prefix="order-12345"))),
        ("id prefix, many, by due", lambda: queries.page(Filters(id_prefix="order-1"))),
        ("id prefix, 1 %, by due", lambda: queries.page(Filters(id_prefix="order-12"))),
        ("id prefix, by id", lambda: queries.page(Filters(id_prefix="order-1"), Order("id"))),
        ("destination", lambda: queries.page(Filters(destination="topic-7"))),
        ("destinations topic-1*", lambda: queries.page(Filters(destination="topic-1*"))),
        ("destination and prefix",
         lambda: queries.page(Filters(destination="topic-7", id_prefix="order-12"))),
        ("due in one hour",
         lambda: queries.page(Filters(due_from=start_ms + hour, due_to=start_ms + 2 * hour))),
        ("count all", lambda: queries.count(Filters())),
        ("count prefix", lambda: queries.count(Filters(id_prefix="order-1"))),
        ("count between", lambda: queries.count(
             Filters(due_from=start_ms + 1, due_to=start_ms + 9 * hour))),
        ("histogram of a week",
         lambda: queries.histogram(
             Filters(), start=start_ms // hour * hour, step=4 * hour, buckets=42)),
        ("histogram of an hour by minutes",
         lambda: queries.histogram(Filters(), start=start_ms, step=60_000, buckets=60)),
    ]  # fmt: skip
    print(f"{'search':<34}{'first ms':>10}{'again ms':>10}")
    for name, question in questions:
        took = []
        for _ in range(5):
            began = time.perf_counter()
            question()
            took.append(1000 * (time.perf_counter() - began))
        print(f"{name:<34}{took[0]:>10.1f}{sorted(took[1:])[1]:>10.1f}")


if __name__ == "__main__":
    main()
