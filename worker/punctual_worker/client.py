"""For producers and consumers in Python: schedule, replace, cancel, try again later.

Loads neither Spark nor RocksDB. Any Kafka producer that sets headers will do as well; this one sets
them and tells where the request went.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, Unpack

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.requesting import (
    Request,
    RequestError,
    Wanted,
    cancel_request,
    delivery_request,
    pause_request,
    resume_request,
)
from punctual_worker.retries import (
    Backoff,
    Failed,
    attempt_of,
    dead_letter_record,
    dead_letter_topic,
    retry_request,
)
from punctual_worker.settings import Settings

__all__ = [
    "Backoff",
    "Client",
    "Placed",
    "Request",
    "RequestError",
    "Retried",
    "cancel_request",
    "delivery_request",
    "pause_request",
    "resume_request",
]
_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Placed:
    """Where a request stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """As the contract writes it in `x-scheduler-source`."""
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True)
class Retried:
    """What has become of a message that could not be handled."""

    attempt: int
    """Which try the next delivery will be; if given up, which was the last."""
    given_up: bool
    placed: Placed
    """Of the request, or of the dead letter."""


class Client:
    """Produces requests for one app id."""

    def __init__(self, settings: Settings, *, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Connects in the background."""
        self._topic = settings.topics.requests
        self._servers = settings.bootstrap_servers
        self._timeout = timeout
        self._topics_seen: set[str] = set()
        self._producer = Producer(
            librdkafka_config(
                settings,
                partitioner="murmur2_random",  # as a Java producer would
                enable_idempotence=True,
                linger_ms=0,
                message_timeout_ms=int(timeout * 1000),
            )
            | {"log_level": 2}
        )

    def schedule(self, to: str, value: bytes | None, **wanted: Unpack[Wanted]) -> Placed:
        """Ask for a delivery; see `delivery_request` for what may be wanted."""
        return self.send(delivery_request(to, value, **wanted))

    def replace(self, to: str, value: bytes | None, **wanted: Unpack[Wanted]) -> Placed:
        """Put another message or time in the place of the pending one with this `request_id`."""
        if not wanted.get("request_id"):
            raise RequestError("The request_id of what is to be replaced is wanted.")
        return self.send(delivery_request(to, value, action="REPLACE", **wanted))

    def cancel(self, request_id: str, *, key: bytes | None = None) -> Placed:
        """Forget a pending message."""
        return self.send(cancel_request(request_id, key=key))

    def pause(self, request_id: str, *, key: bytes | None = None) -> Placed:
        """Hold a pending message back until it is resumed."""
        return self.send(pause_request(request_id, key=key))

    def resume(self, request_id: str, *, key: bytes | None = None) -> Placed:
        """Let a paused message go on."""
        return self.send(resume_request(request_id, key=key))

    def retry_later(
        self,
        message: Failed,
        attempt: int | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008 frozen
        *,
        dead_letter: str | None = None,
        reason: str = "",
    ) -> Retried:
        """Have a message that could not be handled delivered to its own topic again, after a pause.

        `attempt`: which try has failed, by default what its `retry-attempt` header says. After the
        last one it goes to the `dead_letter` topic (by default `<its topic>-dead-letter`), with the
        `reason`. Returns once Kafka has it: then the consumer may commit its offset.
        """
        failed = attempt_of(message) if attempt is None else attempt
        if failed >= backoff.attempts:
            topic = dead_letter or dead_letter_topic(message)
            letter = dead_letter_record(message, failed, reason=reason)
            return Retried(failed, given_up=True, placed=self._send_to(topic, [letter])[0])
        request = retry_request(message, failed, backoff)
        return Retried(failed + 1, given_up=False, placed=self.send(request))

    def send(self, request: Request) -> Placed:
        """Produce one request and wait until Kafka has it."""
        return self.send_all([request])[0]

    def send_all(self, requests: Iterable[Request]) -> list[Placed]:
        """Produce requests, in order, and wait until Kafka has them all."""
        return self._send_to(self._topic, requests)

    def _send_to(self, topic: str, requests: Iterable[Request]) -> list[Placed]:
        self._check_topic(topic)
        wanted = list(requests)
        reports: dict[int, tuple[KafkaError | None, Message]] = {}
        for index, request in enumerate(wanted):
            self._produce(topic, request, reports, index=index)
        self._producer.flush(self._timeout)
        for index, (error, _) in sorted(reports.items()):
            if error is not None:
                raise self._failure(topic, error, keyless=wanted[index].key is None)
        if missing := len(wanted) - len(reports):
            raise RequestError(
                f"{missing} of {len(wanted)} requests were not acknowledged by Kafka at "
                f"{self._servers} within {self._timeout:g} s."
            )
        return [_placed(reports[index][1]) for index in range(len(wanted))]

    def close(self) -> None:
        """Wait for what is under way."""
        self._producer.flush(self._timeout)

    def __enter__(self) -> Self:
        """Nothing to do yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _produce(
        self,
        topic: str,
        request: Request,
        reports: dict[int, tuple[KafkaError | None, Message]],
        *,
        index: int,
    ) -> None:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            reports[index] = (error, message)

        headers: list[tuple[str, str | bytes | None]] = list(request.headers)
        while True:
            try:
                self._producer.produce(
                    topic,
                    key=request.key,
                    value=request.value,
                    headers=headers,
                    on_delivery=on_delivery,
                )
                self._producer.poll(0)
                return
            except BufferError:  # the queue is full: wait for acknowledgements
                self._producer.poll(1)
            except KafkaException as error:
                raise self._failure(topic, error.args[0]) from error

    def _check_topic(self, topic: str) -> None:
        """A full listing makes no topic; producing to a missing one could, on some brokers."""
        if topic in self._topics_seen:
            return
        try:
            found = self._producer.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise self._failure(topic, error.args[0]) from error
        if topic not in found:
            advice = "check the app id, or make it with `punctual topics`"
            if topic != self._topic:
                advice = "want a topic for messages that are given up"
            raise RequestError(f"There is no topic {topic} on Kafka at {self._servers}: {advice}.")
        self._topics_seen.add(topic)

    def _failure(self, topic: str, error: KafkaError, *, keyless: bool = False) -> RequestError:
        if keyless and error.code() == KafkaError.INVALID_RECORD:
            return RequestError(
                f"Kafka does not take a request without a key for {topic}, because that "
                "topic is compacted: give a key, or set requests-cleanup-policy and "
                "rejections-cleanup-policy to delete."
            )
        return RequestError(
            f"Kafka at {self._servers} did not take the request for {topic}: {error.str()}."
        )


def _placed(message: Message) -> Placed:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise RequestError("Kafka acknowledged a request without saying where it is.")
    return Placed(topic, partition, offset)
