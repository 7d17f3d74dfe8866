"""From settings to the topics that should exist."""

from punctual_worker.contract.topics import TopicSpec, topic_specs
from punctual_worker.settings import Settings


def wanted_topics(settings: Settings) -> list[TopicSpec]:
    """The topics that the settings ask for."""
    return topic_specs(
        settings.topics,
        request_partitions=settings.request_partitions,
        action_partitions=settings.action_partitions,
        replication_factor=settings.replication_factor,
        request_max_bytes=settings.request_max_bytes,
        history=settings.history,
        requests_cleanup=settings.requests_cleanup_policy,
        rejections_cleanup=settings.rejections_cleanup_policy,
    )
