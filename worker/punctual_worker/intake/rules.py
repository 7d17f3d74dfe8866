"""What intake has to know beyond a request itself: topics, limits, what is allowed. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from punctual_worker.contract.topics import HEADROOM_BYTES
from punctual_worker.settings import Settings

_DAY_MS: Final = 86_400_000
BROKER_TOPICS: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
)
"""Kafka's own topics: no client may write to them, so the delivery could only fail."""


@dataclass(frozen=True)
class Rules:
    """How requests of one app id are judged and where they go."""

    actions_topic: str
    rejections_topic: str
    forbidden_topics: tuple[str, ...]
    destinations: tuple[str, ...]
    """Patterns with `*`; none means any."""
    horizon_ms: int
    action_partitions: int
    max_action_bytes: int
    max_rejection_bytes: int
    rejections_need_keys: bool
    """Whether the rejections topic is compacted: its broker refuses null keys."""

    @property
    def destinations_regex(self) -> str:
        """Java regular expression of all allowed destinations."""
        patterns = (
            ".*".join(re.escape(part) for part in pattern.split("*"))
            for pattern in self.destinations
        )
        return rf"\A(?:{'|'.join(patterns)})\z"


def rules_from(
    settings: Settings,
    *,
    action_partitions: int,
    rejections_need_keys: bool,
    max_message_bytes: int | None = None,
) -> Rules:
    """Rules of these settings and of the topics as they really are."""
    limit = settings.request_max_bytes + HEADROOM_BYTES
    if max_message_bytes is not None:
        limit = min(limit, max_message_bytes)
    return Rules(
        actions_topic=settings.topics.actions,
        rejections_topic=settings.topics.rejections,
        forbidden_topics=(*settings.topics.all, *settings.sources, *BROKER_TOPICS),
        destinations=settings.destinations,
        horizon_ms=settings.horizon_days * _DAY_MS,
        action_partitions=action_partitions,
        max_action_bytes=limit,
        max_rejection_bytes=limit,
        rejections_need_keys=rejections_need_keys,
    )
