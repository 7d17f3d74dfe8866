"""Intake's place in the topics it reads: the offsets of group `<app>-intake`.

With each offset goes a note (the commit's metadata): which topic it is an offset of, because one
that was deleted and made anew begins at 0 again; and how far the rejections topic had been written
before, because what is taken in again from here on has its rejections after that (`replays`).
"""

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from punctual_worker.intake.sources import Source
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


class Partition(NamedTuple):
    """A partition of a topic with requests."""

    topic: str
    number: int


@dataclass(frozen=True)
class Place:
    """Where to go on."""

    requests: dict[Partition, int]
    """The next request to take in."""
    rejections: dict[int, int]
    """Rejections of those requests, if they were taken in before, are at or after these offsets;
    by partition number."""

    def requests_of(self, topic: str) -> dict[int, int]:
        """The next request of each partition of a topic."""
        return {one.number: at for one, at in self.requests.items() if one.topic == topic}


class GroupOffsets:
    """Reads and commits the group's offsets; never a member of it, so nothing is rebalanced."""

    def __init__(
        self,
        settings: Settings,
        *,
        sources: Sequence[Source],
        topic_ids: Mapping[str, str],
        rejection_partitions: int,
    ) -> None:
        """Nothing is connected yet."""
        self._topic_ids = topic_ids
        self._requests = [
            TopicPartition(source.topic, number)
            for source in sources
            for number in range(source.partitions)
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
        """The group's place, corrected to what the topics still have; none if it has none.

        A topic in which the group has no place is read from its beginning.
        """
        by_topic: dict[str, list[TopicPartition]] = {}
        for one in self._committed():
            by_topic.setdefault(one.topic, []).append(one)
        known = {topic: ones for topic, ones in by_topic.items() if self._is_known(topic, ones)}
        if not known:
            return None
        notes = [
            _read(one.metadata).get("rejections", []) for ones in known.values() for one in ones
        ]
        requests = {
            Partition(one.topic, one.partition): (
                self._corrected(one) if one.topic in known else self._watermarks(one)[0]
            )
            for ones in by_topic.values()
            for one in ones
        }
        place = Place(requests, self._from_notes(notes))
        if new := sorted(by_topic.keys() - known.keys()):
            _log.info("read from the beginning: %s", ", ".join(new))
            self.commit(place)
        return place

    def _is_known(self, topic: str, committed: list[TopicPartition]) -> bool:
        """Whether the group has a place in every partition of this very topic."""
        if any(place.offset < 0 for place in committed):
            return False
        own = self._topic_ids[topic]
        if any(_read(place.metadata).get("topic", own) != own for place in committed):
            _log.warning("the topic %s was made anew, so it is read from its beginning", topic)
            return False
        return True

    def first_place(self) -> Place:
        """The topics' beginnings; committed at once, so that a crash is followed from there too."""
        begins = {Partition(one.topic, one.partition): one for one in self._requests}
        place = Place(
            {partition: self._watermarks(one)[0] for partition, one in begins.items()},
            self.rejection_ends(),
        )
        self.commit(place)
        return place

    def ends(self) -> dict[Partition, int]:
        """The next offset of each partition with requests."""
        return {
            Partition(one.topic, one.partition): self._watermarks(one)[1] for one in self._requests
        }

    def rejection_ends(self) -> dict[int, int]:
        """The next offset of each rejections partition."""
        return {place.partition: self._watermarks(place)[1] for place in self._rejections}

    def commit(self, place: Place) -> None:
        """Everything before this place has been taken in."""
        ends = [at for _, at in sorted(place.rejections.items())]
        places = [
            TopicPartition(one.topic, one.partition, at, metadata=self._note(one.topic, ends))
            for one in self._requests
            if (at := place.requests.get(Partition(one.topic, one.partition))) is not None
        ]
        if places:
            self._consumer.commit(offsets=places, asynchronous=False)

    def _note(self, topic: str, rejection_ends: list[int]) -> str:
        content = {"topic": self._topic_ids[topic], "rejections": rejection_ends}
        note = json.dumps(content, separators=(",", ":"))
        if len(note) > _NOTE_BYTES:  # then they are read from their beginning
            note = json.dumps({"topic": self._topic_ids[topic]})
        return note

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
                "%s/%d: offsets %d to %d were deleted before they were taken in",
                *(place.topic, place.partition, place.offset, low - 1),
            )
            return low
        if place.offset > high:
            _log.warning(
                "%s/%d ends at %d, before the group's offset %d: it was made anew, so it is read "
                "from its beginning",
                *(place.topic, place.partition, high, place.offset),
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
