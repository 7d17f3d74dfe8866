"""The topics that intake takes requests from: the app's own, and those in other dialects. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from punctual_worker.contract.actions import NATIVE_SOURCE, source_tag
from punctual_worker.contract.dialects import Dialect
from punctual_worker.settings import Settings


@dataclass(frozen=True)
class Source:
    """A topic with requests."""

    topic: str
    dialect: Dialect
    tag: str
    """Stands for the topic in action keys."""
    partitions: int

    @property
    def is_own(self) -> bool:
        """Whether it is the app's own requests topic."""
        return self.tag == NATIVE_SOURCE


def sources_of(settings: Settings, partitions: Mapping[str, int]) -> tuple[Source, ...]:
    """The sources of these settings, the app's own first; `partitions` of each topic."""
    own = settings.topics.requests
    dialects = {own: Dialect.NATIVE, **settings.sources}
    return tuple(
        Source(topic, dialect, source_tag(topic, native_topic=own), partitions[topic])
        for topic, dialect in dialects.items()
    )
