"""Writes actions as intake would, for tests of the dispatcher alone."""

import itertools
import time

from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.contract.topics import TopicNames, topic_specs
from punctual_worker.topics.admin import TopicAdmin
from support.kafka import Record, produce

PARTITIONS = 4


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class ActionLog:
    """The actions topic of an app id, with a request offset that counts up."""

    def __init__(self, bootstrap_servers: str, app_id: str, *, history: bool = False) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topics = TopicNames(app_id)
        self._offsets = itertools.count()
        specs = topic_specs(
            self.topics,
            request_partitions=2,
            action_partitions=PARTITIONS,
            replication_factor=1,
            history=history,
        )
        results = TopicAdmin({"bootstrap.servers": bootstrap_servers}).ensure(specs)
        assert all(result.ok for result in results), results

    def record(
        self,
        verb: Verb = Verb.ADD,
        *,
        to: str = "",
        due_ms: int = 0,
        request_id: str = "",
        key: bytes | None = b"key",
        value: bytes | None = b"value",
        headers: actions.Headers | None = None,
        **plan_fields: object,
    ) -> Record:
        """An action not yet written; writing it twice is what intake does after a crash."""
        coordinates = actions.Coordinates("0", 0, next(self._offsets))
        action_key = actions.action_key(coordinates)
        plan = Plan(
            verb,
            due_ms,
            to,
            request_id,
            flags=actions.NULL_VALUE if value is None else "",
            **plan_fields,  # type: ignore[arg-type]
        )
        schedule_id = request_id.encode() or action_key
        return Record(
            value=value or b"",
            key=action_key,
            headers=actions.action_headers(headers or [], key, plan),
            partition=actions.actions_partition(schedule_id, PARTITIONS),
        )

    def write(self, *records: Record) -> None:
        produce(self.bootstrap_servers, self.topics.actions, records)

    def add(self, **fields: object) -> Record:
        record = self.record(Verb.ADD, **fields)  # type: ignore[arg-type]
        self.write(record)
        return record

    def replace(self, **fields: object) -> Record:
        record = self.record(Verb.REPLACE, **fields)  # type: ignore[arg-type]
        self.write(record)
        return record

    def cancel(self, request_id: str) -> Record:
        record = self.record(Verb.CANCEL, request_id=request_id)
        self.write(record)
        return record
