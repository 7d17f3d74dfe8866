"""The topics of an app id and the configuration the contract asks for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

CleanupPolicy = Literal["compact", "delete"]

_DAY_MS: Final = 24 * 60 * 60 * 1000
REQUEST_MAX_BYTES: Final = 1_048_588
"""Kafka's own default for `max.message.bytes`."""
HEADROOM_BYTES: Final = 262_144
"""By how much actions and rejections may be larger than requests: headers are added on the way."""
ACTIONS_COMPACTION_LAG_MS: Final = _DAY_MS
ACTIONS_TOMBSTONE_RETENTION_MS: Final = _DAY_MS
MAX_REQUEST_PARTITIONS: Final = 256
"""The dispatcher's checkpoint has an offset per request partition and must fit into 4,096 bytes."""
BROKERS_DEFAULT: Final = -1
"""A replication factor that leaves the number to the brokers."""
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal_topic(name: str) -> bool:
    """Whether a broker would accept this topic name."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in {".", ".."}


@dataclass(frozen=True)
class TopicNames:
    """Names of the topics that belong to one app id."""

    app_id: str

    @property
    def requests(self) -> str:
        """Where users write."""
        return f"{self.app_id}-schedule-requests"

    @property
    def actions(self) -> str:
        """The dispatcher's log."""
        return f"{self.app_id}-schedule-actions"

    @property
    def rejections(self) -> str:
        """What was wrong."""
        return f"{self.app_id}-schedule-rejections"

    @property
    def history(self) -> str:
        """What became of each request, where that is switched on."""
        return f"{self.app_id}-schedule-history"

    @property
    def all(self) -> tuple[str, str, str, str]:
        """Every topic that may never be a destination."""
        return (self.requests, self.actions, self.rejections, self.history)


@dataclass(frozen=True)
class TopicSpec:
    """A topic as it should be."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


def topic_specs(
    names: TopicNames,
    *,
    request_partitions: int,
    action_partitions: int,
    replication_factor: int,
    request_max_bytes: int = REQUEST_MAX_BYTES,
    history: bool = False,
    requests_cleanup: CleanupPolicy = "compact",
    rejections_cleanup: CleanupPolicy = "compact",
) -> list[TopicSpec]:
    """What should exist for an app id."""
    if request_partitions > MAX_REQUEST_PARTITIONS:
        raise ValueError(
            f"{request_partitions} request partitions: at most {MAX_REQUEST_PARTITIONS} can be had"
        )
    larger = str(request_max_bytes + HEADROOM_BYTES)
    specs = [
        TopicSpec(
            names.requests,
            request_partitions,
            replication_factor,
            {"max.message.bytes": str(request_max_bytes), **_kept_for_readers(requests_cleanup)},
        ),
        TopicSpec(
            names.actions,
            action_partitions,
            replication_factor,
            {
                "max.message.bytes": larger,
                "cleanup.policy": "compact",
                "min.compaction.lag.ms": str(ACTIONS_COMPACTION_LAG_MS),
                "delete.retention.ms": str(ACTIONS_TOMBSTONE_RETENTION_MS),
            },
        ),
        TopicSpec(
            names.rejections,
            request_partitions,
            replication_factor,
            {"max.message.bytes": larger, **_kept_for_readers(rejections_cleanup)},
        ),
    ]
    if history:
        specs.append(
            TopicSpec(
                names.history,
                action_partitions,
                replication_factor,
                {"cleanup.policy": "delete", "retention.ms": str(30 * _DAY_MS)},
            )
        )
    return specs


def _kept_for_readers(cleanup: CleanupPolicy) -> dict[str, str]:
    """Nothing may be compacted or expire before it was read: 7 days, however it is cleaned up."""
    week = str(7 * _DAY_MS)
    if cleanup == "delete":
        return {"cleanup.policy": "delete", "retention.ms": week}
    return {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": week,
        "delete.retention.ms": week,
    }
