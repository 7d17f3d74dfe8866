"""Kafka as the operator needs it: topics as they are, and changed by plan.

`punctual_worker.topics.admin` does the asking, in threads, because its calls block. Clients are
kept while they are in use, since each has threads and connections of its own; one that failed is
dropped, so that nothing goes on knocking in the background.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from punctual_worker.kafka_clients import KafkaConfigError, java_config, librdkafka_config
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin, TopicsError
from punctual_worker.topics.plan import TopicPlan, TopicResult, TopicState, Trouble

from punctual_operator.api.names import Fingerprint
from punctual_operator.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    InvalidSpecError,
    KafkaError,
    KafkaUnreachableError,
)
from punctual_operator.metrics import OperatorMetrics
from punctual_operator.resources.objects import fingerprint

T = TypeVar("T")
_IDLE_SECONDS: Final = 600.0
_ERRORS: Final[dict[Trouble, type[KafkaError]]] = {
    "unreachable": KafkaUnreachableError,
    "unauthenticated": AuthenticationFailedError,
    "denied": AuthorizationFailedError,
    "refused": KafkaError,
}


@dataclass(frozen=True)
class Connection:
    """How to connect; the fingerprint tells connections apart without telling secrets."""

    servers: str
    properties: Mapping[str, str]

    @property
    def fingerprint(self) -> Fingerprint:
        """Stays in memory."""
        return fingerprint([self.servers, dict(self.properties)])


@dataclass(frozen=True)
class ClusterView:
    """What a Kafka cluster told."""

    cluster_id: str | None
    topics: Mapping[str, TopicState]


@dataclass
class _Kept:
    admin: TopicAdmin
    used_at: float


class KafkaClusters:
    """All Kafka clusters that Schedulers name."""

    def __init__(self, executor: Executor, metrics: OperatorMetrics, *, timeout: float) -> None:
        self._executor = executor
        self._metrics = metrics
        self._timeout = timeout
        self._kept: dict[Fingerprint, _Kept] = {}

    async def observe(self, connection: Connection, names: Sequence[str]) -> ClusterView:
        """The cluster, and those of the topics that exist."""

        def ask(admin: TopicAdmin) -> ClusterView:
            topics = admin.describe(names)
            return ClusterView(admin.cluster_id, topics)

        return await self._with_admin(connection, ask)

    async def apply(self, connection: Connection, plans: Sequence[TopicPlan]) -> list[TopicResult]:
        """Every plan; one topic's failure stops no other."""

        def change(admin: TopicAdmin) -> list[TopicResult]:
            results = []
            for plan in plans:
                if plan.changes:
                    verb = "create" if plan.create else "alter"
                    self._metrics.kafka_writes.labels(verb).inc()
                    results.append(admin.apply(plan))
                else:
                    results.append(TopicResult(plan, applied=True))
            made = [r.plan.spec.name for r in results if r.plan.create and r.error is None]
            admin.await_topics(made)
            return results

        return await self._with_admin(connection, change)

    async def delete(self, connection: Connection, names: Sequence[str]) -> None:
        """Topics, with all that is in them."""

        def remove(admin: TopicAdmin) -> None:
            self._metrics.kafka_writes.labels("delete").inc()
            admin.delete(names)

        await self._with_admin(connection, remove)

    async def _with_admin(self, connection: Connection, work: Callable[[TopicAdmin], T]) -> T:
        self._forget_idle()
        loop = asyncio.get_running_loop()

        def run() -> T:
            return work(self._admin(connection))

        try:
            return await loop.run_in_executor(self._executor, run)
        except TopicsError as error:
            self._kept.pop(connection.fingerprint, None)
            raise _ERRORS[error.trouble](str(error)) from error

    def _admin(self, connection: Connection) -> TopicAdmin:
        kept = self._kept.get(connection.fingerprint)
        if kept is None:
            kept = _Kept(_new_admin(connection, self._timeout), 0.0)
            self._kept[connection.fingerprint] = kept
        kept.used_at = time.monotonic()
        return kept.admin

    def _forget_idle(self) -> None:
        limit = time.monotonic() - _IDLE_SECONDS
        for name in [name for name, kept in self._kept.items() if kept.used_at < limit]:
            self._kept.pop(name, None)


def _new_admin(connection: Connection, timeout: float) -> TopicAdmin:
    settings = Settings.model_validate(
        {"bootstrap_servers": connection.servers, "kafka": dict(connection.properties)}
    )
    try:
        java_config(settings)  # what intake would say, before it is started to say it
        return TopicAdmin(librdkafka_config(settings), timeout=timeout)
    except KafkaConfigError as error:
        raise InvalidSpecError(f"The Kafka connection cannot be used: {error}") from error
    except KafkaException as error:
        reason = error.args[0].str()
        raise InvalidSpecError(f"The Kafka connection cannot be used: {reason}.") from error
