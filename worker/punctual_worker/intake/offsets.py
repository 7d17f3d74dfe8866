"""Intake's place in the requests topic: the offsets of group `<app>-intake`."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from punctual_worker.intake.stream import EARLIEST
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings

_ASK_SECONDS: Final = 10.0
_log = logging.getLogger(__name__)


class GroupOffsets:
    """Reads and commits the group's offsets; never a member of it, so nothing is rebalanced."""

    def __init__(self, settings: Settings, partitions: int) -> None:
        """Nothing is connected yet."""
        self._topic = settings.topics.requests
        self._partitions = range(partitions)
        config: dict[str, Any] = librdkafka_config(
            settings,
            group_id=f"{settings.app_id}-intake",
            enable_auto_commit=False,
            allow_auto_create_topics=False,
        )
        self._consumer = Consumer({"log_level": 2, **config})

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def start(self) -> dict[int, int]:
        """Where to begin: the group's place, corrected to what the topic still has."""
        committed = self._consumer.committed(list(self._places()), timeout=_ASK_SECONDS)
        return {place.partition: self._corrected(place) for place in committed}

    def ends(self) -> dict[int, int]:
        """The next offset of each partition."""
        return {place.partition: self._watermarks(place)[1] for place in self._places()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Everything before these has been taken in."""
        places = [TopicPartition(self._topic, number, at) for number, at in offsets.items()]
        if places:
            self._consumer.commit(offsets=places, asynchronous=False)

    def _places(self) -> Iterable[TopicPartition]:
        return (TopicPartition(self._topic, number) for number in self._partitions)

    def _watermarks(self, place: TopicPartition) -> tuple[int, int]:
        found = self._consumer.get_watermark_offsets(place, timeout=_ASK_SECONDS, cached=False)
        return (int(found[0]), int(found[1]))

    def _corrected(self, place: TopicPartition) -> int:
        if place.offset < 0:
            return EARLIEST
        low, high = self._watermarks(place)
        if place.offset < low:
            _log.error(
                "requests partition %d: offsets %d to %d were deleted before they were taken in",
                *(place.partition, place.offset, low - 1),
            )
            return EARLIEST
        if place.offset > high:
            _log.warning(
                "requests partition %d ends at %d, before the group's offset %d: it was made anew, "
                "so it is read from its beginning",
                *(place.partition, high, place.offset),
            )
            return EARLIEST
        return int(place.offset)
