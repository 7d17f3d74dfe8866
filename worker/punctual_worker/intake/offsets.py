"""Intake's place in the requests topic: the offsets of group `<app>-intake`.

With each offset goes a note (the commit's metadata): which topic it is an offset of, because one
that was deleted and made anew begins at 0 again; and how far the rejections topic had been written
before, because what is taken in again from here on has its rejections after that (`replays`).
"""

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings

_ASK_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.2
_NOTE_BYTES: Final = 4096
"""The most that brokers keep with an offset, by default."""
_NOT_YET: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
"""What a broker says that has just started; librdkafka does not ask again by itself."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where to go on, by partition number."""

    requests: dict[int, int]
    """The next request to take in."""
    rejections: dict[int, int]
    """Rejections of those requests, if they were taken in before, are at or after these offsets."""


class GroupOffsets:
    """Reads and commits the group's offsets; never a member of it, so nothing is rebalanced."""

    def __init__(
        self, settings: Settings, *, topic_id: str, partitions: int, rejection_partitions: int
    ) -> None:
        """Nothing is connected yet."""
        self._topic_id = topic_id
        self._requests = [
            TopicPartition(settings.topics.requests, number) for number in range(partitions)
        ]
        self._rejections = [
            TopicPartition(settings.topics.rejections, number)
            for number in range(rejection_partitions)
        ]
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

    def place(self) -> Place | None:
        """The group's place, corrected to what the topic still has; none if it has none."""
        committed = [place for place in self._committed() if place.offset >= 0]
        if len(committed) < len(self._requests):
            return None
        notes = [_read(place.metadata) for place in committed]
        if any(note.get("topic", self._topic_id) != self._topic_id for note in notes):
            _log.warning("the requests topic was made anew, so it is read from its beginning")
            return None
        return Place(
            {place.partition: self._corrected(place) for place in committed},
            self._from_notes([note.get("rejections", []) for note in notes]),
        )

    def first_place(self) -> Place:
        """The topic's beginning, committed at once, so that also a crash is followed from there."""
        place = Place(
            {one.partition: self._watermarks(one)[0] for one in self._requests},
            self.rejection_ends(),
        )
        self.commit(place)
        return place

    def ends(self) -> dict[int, int]:
        """The next offset of each requests partition."""
        return {place.partition: self._watermarks(place)[1] for place in self._requests}

    def rejection_ends(self) -> dict[int, int]:
        """The next offset of each rejections partition."""
        return {place.partition: self._watermarks(place)[1] for place in self._rejections}

    def commit(self, place: Place) -> None:
        """Everything before this place has been taken in."""
        ends = [at for _, at in sorted(place.rejections.items())]
        note = json.dumps({"topic": self._topic_id, "rejections": ends}, separators=(",", ":"))
        if len(note) > _NOTE_BYTES:  # then they are read from their beginning
            note = json.dumps({"topic": self._topic_id})
        places = [
            TopicPartition(one.topic, one.partition, place.requests[one.partition], metadata=note)
            for one in self._requests
            if one.partition in place.requests
        ]
        if places:
            self._consumer.commit(offsets=places, asynchronous=False)

    def _committed(self) -> Iterable[TopicPartition]:
        deadline = time.monotonic() + _ASK_SECONDS
        while True:
            try:
                return self._consumer.committed(self._requests, timeout=_ASK_SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)

    def _from_notes(self, notes: list[Any]) -> dict[int, int]:
        found: dict[int, int] = {}
        for place in self._rejections:
            low, high = self._watermarks(place)
            noted = [n[place.partition] if place.partition < len(n) else low for n in notes]
            at = min(int(offset) for offset in noted)
            found[place.partition] = at if low <= at <= high else low
        return found

    def _watermarks(self, place: TopicPartition) -> tuple[int, int]:
        found = self._consumer.get_watermark_offsets(place, timeout=_ASK_SECONDS, cached=False)
        return (int(found[0]), int(found[1]))

    def _corrected(self, place: TopicPartition) -> int:
        low, high = self._watermarks(place)
        if place.offset < low:
            _log.error(
                "requests partition %d: offsets %d to %d were deleted before they were taken in",
                *(place.partition, place.offset, low - 1),
            )
            return low
        if place.offset > high:
            _log.warning(
                "requests partition %d ends at %d, before the group's offset %d: it was made anew, "
                "so it is read from its beginning",
                *(place.partition, high, place.offset),
            )
            return low
        return int(place.offset)


def _read(note: str | None) -> Mapping[str, Any]:
    """A note, if it is one of ours: ordinary tools commit offsets without."""
    try:
        found = json.loads(note or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
