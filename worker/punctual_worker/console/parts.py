"""Health, delivery rate and lateness of the other parts, as far as their addresses are known."""

import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from punctual_worker.errors import PunctualError

_EVERY_SECONDS: Final = 2.0
_TIMEOUT_SECONDS: Final = 2.0
_SAMPLES: Final = 30
_READ_LIMIT: Final = 4_000_000


@dataclass(frozen=True)
class Part:
    """A part as it last answered."""

    name: str
    url: str
    ready: bool
    says: str


class Delivery(NamedTuple):
    """What the dispatchers tell of the last minute."""

    per_second: float
    p50_ms: float | None
    p99_ms: float | None


class Sample(NamedTuple):
    """Counters at one moment."""

    at: float
    delivered: float
    buckets: tuple[tuple[float, float], ...]
    """Upper bound in seconds -> how many were at most so late."""


class PartsWatch:
    """Asks all parts every few seconds, in a thread of its own."""

    def __init__(self, parts: Iterable[str]) -> None:
        """`name=url` texts."""
        self._urls = dict(_parse(text) for text in parts)
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)
        self.latest: list[Part] = []

    def start(self) -> None:
        """Begin to ask, if there is anybody to ask."""
        if self._urls:
            self._thread.start()

    def stop(self) -> None:
        """Stop asking."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def delivery(self) -> Delivery | None:
        """Rate and lateness over the samples kept; None without a dispatcher to ask."""
        samples = list(self._samples)
        return summarise(samples[0], samples[-1]) if len(samples) > 1 else None

    def _run(self) -> None:
        while True:
            latest, texts = [], []
            for name, url in self._urls.items():
                ready, says = _get(f"{url}/readyz")
                latest.append(Part(name, url, ready, says))
                ok, metrics = _get(f"{url}/metrics")
                if ok:
                    texts.append(metrics)
            self.latest = latest
            if (sample := read_sample(texts, at=time.monotonic())) is not None:
                self._samples.append(sample)
            if self._stop.wait(_EVERY_SECONDS):
                return


def read_sample(texts: Iterable[str], *, at: float) -> Sample | None:
    """The dispatchers' counters, added up; None if no dispatcher is among them."""
    delivered: float | None = None
    buckets: dict[float, float] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "punctual_delivered_total":
                    delivered = (delivered or 0.0) + sample.value
                elif sample.name == "punctual_lateness_seconds_bucket":
                    bound = float(sample.labels["le"])
                    buckets[bound] = buckets.get(bound, 0.0) + sample.value
    return None if delivered is None else Sample(at, delivered, tuple(sorted(buckets.items())))


def summarise(first: Sample, last: Sample) -> Delivery:
    """From two samples to a rate and percentiles of what lies between them."""
    span = max(last.at - first.at, 0.001)
    rate = max(last.delivered - first.delivered, 0.0) / span
    before = dict(first.buckets)
    between = [(bound, number - before.get(bound, 0.0)) for bound, number in last.buckets]
    return Delivery(rate, _percentile(between, 0.5), _percentile(between, 0.99))


def _percentile(buckets: list[tuple[float, float]], share: float) -> float | None:
    """Milliseconds; the upper bound of the bucket, so never better than it was."""
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    for bound, number in buckets:
        if number >= share * total:
            return None if bound == float("inf") else bound * 1000
    return None


def _get(url: str) -> tuple[bool, str]:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 http only, see _parse
            return True, answer.read(_READ_LIMIT).decode(errors="replace").strip()
    except urllib.error.HTTPError as error:
        with error:
            return False, error.read(2_000).decode(errors="replace").strip()
    except (OSError, ValueError):
        return False, "cannot be reached"


def _parse(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not name or not equals or not url.startswith(("http://", "https://")):
        raise PunctualError(f"console-parts: {text!r} is given, want name=http://host:port.")
    return name, url.rstrip("/")
