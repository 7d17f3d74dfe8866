"""Which topics the view is made from, and clients to read them with."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from punctual_worker.errors import PunctualError
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings
from punctual_worker.topics.admin import TopicAdmin, TopicsError

_ASK_SECONDS: Final = 10.0


class LogsError(PunctualError):
    """The topics cannot be read."""


@dataclass(frozen=True)
class Place:
    """The topics as they are now."""

    partitions: dict[str, list[int]]
    identity: dict[str, str]
    """Topic ids: a topic that is deleted and made again has another."""
    copy_max_age_ms: int
    """A copy older than this may have missed tombstones that the log has forgotten."""


class Logs:
    """The three logs of an app id."""

    def __init__(self, settings: Settings, *, database: Path) -> None:
        self.config: dict[str, Any] = librdkafka_config(
            settings, client_id=f"{settings.app_id}-console"
        )
        self.database = database
        self.actions = settings.topics.actions
        self.rejections = settings.topics.rejections
        self.history = settings.topics.history
        self.kept = {
            self.rejections: settings.console_rejections_kept,
            self.history: settings.console_history_kept,
        }
        self._group_id = f"{settings.app_id}-console"

    def describe(self) -> Place:
        """What there is; `LogsError` if that is not enough."""
        wanted = (self.actions, self.rejections, self.history)
        try:
            states = TopicAdmin(self.config).describe(wanted)
        except TopicsError as error:
            raise LogsError(str(error)) from error
        if missing := [name for name in wanted[:2] if name not in states]:
            raise LogsError(
                f"There is no topic {', '.join(missing)}: make it with `punctual topics`."
            )
        partitions = {name: list(range(state.partitions)) for name, state in states.items()}
        retention = int(states[self.actions].config.get("delete.retention.ms") or 86_400_000)
        ids = self._ids(sorted(states))
        identity = {f"topic {name}": f"{ids[name]} {len(partitions[name])}" for name in ids}
        return Place(partitions, identity, retention // 2)

    def consumer(self, **own: Any) -> Consumer:
        """Reads committed records wherever it is told to; never joins the group it must name."""
        return Consumer(
            {
                "group.id": self._group_id,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": 32_768,
                "fetch.wait.max.ms": 100,
                **self.config,
                "log_level": 2,
                **own,
            }
        )

    def _ids(self, names: list[str]) -> dict[str, str]:
        admin = AdminClient({"log_level": 2, **self.config})
        try:
            answers = admin.describe_topics(TopicCollection(names), request_timeout=_ASK_SECONDS)
            return {name: str(answers[name].result(_ASK_SECONDS).topic_id) for name in names}
        except (KafkaException, TimeoutError) as error:
            raise LogsError(f"The topics' ids cannot be read: {error}.") from error


def now_ms() -> int:
    """The clock."""
    return time.time_ns() // 1_000_000
