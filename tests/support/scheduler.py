"""Intake and dispatcher together, used as a producer uses them: headers in, records out."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from punctual_worker.contract.topics import CleanupPolicy, TopicNames, topic_specs
from punctual_worker.topics.admin import TopicAdmin
from support.kafka import Headers, Record, consume_committed, create_topic, new_producer, produce
from support.processes import Part


def at(seconds: float) -> str:
    """A time so far from now, as the deliver-at header has it."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunningScheduler:
    """Topics, one intake and one dispatcher of an app id."""

    def __init__(
        self,
        bootstrap_servers: str,
        app_id: str,
        folder: Path,
        *,
        cleanup: CleanupPolicy = "compact",
        **settings: object,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topics = TopicNames(app_id)
        self._producer = new_producer(bootstrap_servers, **{"message.max.bytes": 10_000_000})
        specs = topic_specs(
            self.topics,
            request_partitions=2,
            action_partitions=2,
            replication_factor=1,
            history=True,
            requests_cleanup=cleanup,
            rejections_cleanup=cleanup,
        )
        assert all(
            result.ok
            for result in TopicAdmin({"bootstrap.servers": bootstrap_servers}).ensure(specs)
        )
        common = {"bootstrap_servers": bootstrap_servers, "app_id": app_id}
        self.intake = Part("intake", folder=folder / "intake", **common, **settings)
        self.dispatcher = Part(
            "dispatcher",
            folder=folder / "dispatcher",
            history="true",
            retry_backoff_ms=100,
            delivery_attempts=3,
            **common,
        )

    def start(self) -> None:
        self.intake.start(wait=False)
        self.dispatcher.start(wait=False)
        self.intake.wait_ready()
        self.dispatcher.wait_ready()

    def stop(self) -> None:
        self.intake.kill_if_left()
        self.dispatcher.kill_if_left()

    def new_destination(self, name: str, partitions: int = 3, **config: str) -> str:
        topic = f"{self.topics.app_id}-{name}"
        return create_topic(self.bootstrap_servers, topic, partitions, config=config)

    def request(
        self,
        scheduler_headers: Mapping[str, str | bytes | None] | None = None,
        *,
        key: bytes | None = b"key",
        value: bytes | None = b"value",
        headers: Headers = (),
    ) -> Record:
        """Produce one request; `scheduler_headers` without their common prefix."""
        ours = [
            (f"x-scheduler-{name}", content.encode() if isinstance(content, str) else content)
            for name, content in (scheduler_headers or {}).items()
        ]
        record = Record(value=value, key=key, headers=[*headers, *ours])
        (placed,) = produce(
            self.bootstrap_servers, self.topics.requests, [record], producer=self._producer
        )
        return placed

    def delivered(self, topic: str, count: int, *, settle: float = 0.4) -> list[Record]:
        """What stands in a destination, once there are `count`; a moment longer for repeats."""
        return consume_committed(self.bootstrap_servers, topic, count, settle=settle, timeout=40)

    def rejection_of(self, request: Record) -> Record:
        """The rejection of a request; fails if there is none."""
        source = f"{request.topic}/{request.partition}/{request.offset}".encode()

        def there(records: list[Record]) -> bool:
            return any(record.header("x-scheduler-source") == source for record in records)

        found = consume_committed(
            self.bootstrap_servers, self.topics.rejections, until=there, timeout=40
        )
        (rejection,) = [r for r in found if r.header("x-scheduler-source") == source]
        return rejection

    def wait_until_decided(self, *requests: Record) -> None:
        """Until the dispatcher has taken these requests in, as history tells."""
        sources = {f"{r.topic}/{r.partition}/{r.offset}" for r in requests}

        def there(records: list[Record]) -> bool:
            text = b"".join(record.value or b"" for record in records).decode()
            return all(f'{source}"' in text for source in sources)

        consume_committed(self.bootstrap_servers, self.topics.history, until=there, timeout=40)
