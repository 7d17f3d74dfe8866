"""How fast the console's view is filled and searched: prints figures, asserts nothing.

python bench/console_view.py 1000000            # through Kafka, as in real life
python bench/console_view.py 10000000 --direct  # straight into the view; --keep to search it again

One in twenty is paused, one in a thousand recurs, and a fifth have ids that begin with the day they
are due, because ids that go with time are common and the hardest to search by prefix.
"""

import argparse
import random
import resource
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Producer
from punctual_worker.console import rows as view_rows
from punctual_worker.console import schema
from punctual_worker.console.filters import Filters, Order
from punctual_worker.console.main import running
from punctual_worker.console.queries import Queries
from punctual_worker.console.reading import Reader
from punctual_worker.console.view import Batch, View
from punctual_worker.contract import actions
from punctual_worker.contract.actions import NEVER_MS, Plan, Verb
from punctual_worker.contract.times import format_ms
from punctual_worker.contract.topics import topic_specs
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin

PARTITIONS = 8
BATCH = 20_000
WEEK_MS = 7 * 24 * 3_600_000
SPREAD_SEED = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--direct", action="store_true", help="without Kafka")
    parser.add_argument("--keep", type=Path, help="with --direct: keep the view's file here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.direct:
            search_direct(given.keep or Path(folder) / "view.db", given.rows)
        else:
            search_console(Path(folder), given.rows)


def search_direct(path: Path, rows: int) -> None:
    """The view alone."""
    start_ms = time.time_ns() // 1_000_000 + 3_600_000
    if path.exists():
        start_ms = int(path.with_suffix(".start").read_text())
    else:
        path.with_suffix(".start").write_text(str(start_ms))
        schema.open_writer(path, identity={}, now_ms=start_ms, max_age_ms=WEEK_MS)
        view = View(path)
        batch = Batch()
        began = time.monotonic()
        for number, (key, plan) in enumerate(plans(rows, start_ms), 1):
            partition = actions.actions_partition(plan.request_id.encode(), PARTITIONS)
            headers = actions.action_headers([], b"key", plan)
            row = view_rows.read_action(partition, number, key, b"x" * 200, headers)
            if isinstance(row, view_rows.PendingRow):
                batch.put(row)
            if number % BATCH == 0 or number == rows:
                view.apply(batch, now_ms=start_ms)
                batch = Batch()
        took, began = time.monotonic() - began, time.monotonic()
        view.make_searchable()
        print(
            f"{rows:,} rows in {took:.0f} s: {rows / took:,.0f} rows/s; "
            f"indexes in {time.monotonic() - began:.0f} s"
        )
        view.close()
    print_size(path, rows)
    search(Queries(Reader(path)), start_ms)
    print_memory()


def search_console(folder: Path, rows: int) -> None:
    """A console that reads a real log."""
    with EmbeddedBroker(folder / "broker") as broker:
        settings = Settings(
            bootstrap_servers=broker.bootstrap_servers,
            app_id="bench",
            data_dir=folder,
            http_port=0,
        )
        start_ms = time.time_ns() // 1_000_000 + 3_600_000
        fill(settings, rows, start_ms)
        began, cpu = time.monotonic(), time.process_time()
        with running(settings) as url:
            wait_ready(url)
            took, used = time.monotonic() - began, time.process_time() - cpu
            print(
                f"{rows:,} rows in {took:.0f} s: {rows / took:,.0f} rows/s, "
                f"{used / rows * 1e6:.1f} us of CPU each"
            )
            database = settings.data_dir / "console" / "bench" / "view.db"
            print_size(database, rows)
            print_memory()
            search(Queries(Reader(database)), start_ms)
            ask(url)
            print_memory()


def print_size(database: Path, rows: int) -> None:
    disk = sum(file.stat().st_size for file in database.parent.glob(f"{database.name}*"))
    print(f"{disk / 1e9:.2f} GB of disk, {disk / rows:.0f} bytes each row")


def print_memory() -> None:
    now = next(
        int(line.split()[1]) // 1024
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"memory: {now} MB now, {peak} MB at most")


def plans(rows: int, start_ms: int) -> Iterator[tuple[bytes, Plan]]:
    chance = random.Random(SPREAD_SEED)
    for number in range(rows):
        due = start_ms + chance.randrange(WEEK_MS)
        request_id = f"order-{chance.randrange(10**9):09d}"
        if number % 5 == 0:
            request_id = f"{format_ms(due)[:10]}-{number}"
        cron = "0 9 * * *" if number % 1000 == 1 else ""
        key, plan = (
            f"0/{number % 8}/{number // 8}",
            Plan(Verb.ADD, due, f"topic-{number % 20}", request_id, cron=cron),
        )
        if number % 20 == 3:
            plan = plan._replace(due_ms=NEVER_MS, scheduled_for_ms=due).pause()
            key += "#1"
        yield key.encode(), plan


def fill(settings: Settings, rows: int, start_ms: int) -> None:
    specs = topic_specs(
        settings.topics, request_partitions=1, action_partitions=PARTITIONS, replication_factor=1
    )
    TopicAdmin({"bootstrap.servers": settings.bootstrap_servers}).ensure(specs)
    producer = Producer(
        {"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 20, "log_level": 2}
    )
    value = b"x" * 200
    for key, plan in plans(rows, start_ms):
        while True:
            try:
                producer.produce(
                    settings.topics.actions,
                    key=key,
                    value=value,
                    headers=actions.action_headers([], b"key", plan),
                    partition=actions.actions_partition(plan.request_id.encode(), PARTITIONS),
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def wait_ready(url: str) -> None:
    while True:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=60):
                return
        except urllib.error.HTTPError as error:
            error.close()
            time.sleep(0.05)


def search(queries: Queries, start_ms: int) -> None:
    hour = 3_600_000
    late_day = format_ms(start_ms + WEEK_MS - 36 * hour)[:10]
    questions: list[tuple[str, Callable[[], object]]] = [
        ("first page", lambda: queries.page(Filters())),
        ("last page", lambda: queries.page(Filters(), Order("due", True))),
        ("one id", lambda: queries.find("order-123456789")),
        ("id prefix, few", lambda: queries.page(Filters(id_prefix="order-12345"))),
        ("id prefix, 0.8 %, by due", lambda: queries.page(Filters(id_prefix="order-12"))),
        ("id prefix, 8 %, by due", lambda: queries.page(Filters(id_prefix="order-1"))),
        ("id prefix that goes with time", lambda: queries.page(Filters(id_prefix=late_day))),
        ("  at one destination",
         lambda: queries.page(Filters(id_prefix=late_day, destination="topic-5"))),
        ("id prefix, by id", lambda: queries.page(Filters(id_prefix="order-1"), Order("id"))),
        ("destination", lambda: queries.page(Filters(destination="topic-7"))),
        ("destination, by id", lambda: queries.page(Filters(destination="topic-7"), Order("id"))),
        ("destinations topic-1*", lambda: queries.page(Filters(destination="topic-1*"))),
        ("destination and prefix",
         lambda: queries.page(Filters(destination="topic-7", id_prefix="order-12"))),
        ("due in one hour",
         lambda: queries.page(Filters(due_from=start_ms + hour, due_to=start_ms + 2 * hour))),
        ("due in a minute, by id",
         lambda: queries.page(
             Filters(due_from=start_ms, due_to=start_ms + hour // 60), Order("id"))),
        ("paused", lambda: queries.page(Filters(paused=True))),
        ("paused, by id", lambda: queries.page(Filters(paused=True), Order("id"))),
        ("paused, at one destination",
         lambda: queries.page(Filters(paused=True, destination="topic-3"))),
        ("paused, prefix", lambda: queries.page(Filters(paused=True, id_prefix="order-12"))),
        ("recurring", lambda: queries.page(Filters(recurring=True))),
        ("recurring, prefix", lambda: queries.page(Filters(recurring=True, id_prefix="order-1"))),
        ("not recurring", lambda: queries.page(Filters(recurring=False))),
        ("count all", lambda: queries.count(Filters())),
        ("count paused", lambda: queries.count(Filters(paused=True))),
        ("count prefix", lambda: queries.count(Filters(id_prefix="order-1"))),
        ("count between", lambda: queries.count(
             Filters(due_from=start_ms + 1, due_to=start_ms + 9 * hour))),
        ("  at one destination", lambda: queries.count(
             Filters(due_from=start_ms + 1, due_to=start_ms + 9 * hour, destination="topic-7"))),
        ("by destination", lambda: queries.by_destination()),
        ("histogram of a week",
         lambda: queries.histogram(
             Filters(), start=start_ms // hour * hour, step=4 * hour, buckets=42)),
        ("histogram of an hour by minutes",
         lambda: queries.histogram(Filters(), start=start_ms, step=60_000, buckets=60)),
        ("  of what is paused, in a week",
         lambda: queries.histogram(
             Filters(paused=True), start=start_ms // hour * hour, step=4 * hour, buckets=42)),
    ]  # fmt: skip
    print(f"{'search':<34}{'first ms':>10}{'again ms':>10}")
    for name, question in questions:
        print_times(name, question)


def ask(url: str) -> None:
    """The same through the console, as a browser would."""

    def get(path: str) -> object:
        with urllib.request.urlopen(f"{url}{path}", timeout=60) as answer:
            return answer.read()

    def seconds_apart() -> object:
        time.sleep(1.1)  # the overview is remembered for a second
        return None

    for path in ("/pending", "/pending?id=order-12", "/recurring", "/api/v1/schedules?limit=1000"):
        print_times(path, lambda path=path: get(path))  # type: ignore[misc]
    for path in ("/", "/?span=week"):
        print_times(path, lambda path=path: get(path), before=seconds_apart)  # type: ignore[misc]


def print_times(
    name: str, question: Callable[[], object], before: Callable[[], object] | None = None
) -> None:
    took = []
    for _ in range(5):
        if before is not None:
            before()
        began = time.perf_counter()
        question()
        took.append(1000 * (time.perf_counter() - began))
    print(f"{name:<34}{took[0]:>10.1f}{sorted(took[1:])[1]:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
