"""For producers in Python: build requests and produce them. Loads neither Spark nor RocksDB.

Any Kafka producer that sets headers will do as well; this one sets them and tells where the request
went. What a request may say is judged by intake alone: what is wrong comes back as a rejection.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Literal, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from punctual_worker.contract import headers as names
from punctual_worker.contract.times import format_ms, to_ms
from punctual_worker.errors import PunctualError
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings

Headers = Sequence[tuple[str, bytes | None]]
_TIMEOUT_SECONDS: Final = 30.0


class RequestError(PunctualError):
    """A request cannot be built or produced."""


@dataclass(frozen=True)
class Request:
    """What is produced to the requests topic."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Placed:
    """Where a request stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """As the contract writes it in `x-scheduler-source`."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def delivery_request(
    to: str,
    value: bytes | None,
    *,
    action: Literal["ADD", "REPLACE"] = "ADD",
    deliver_at: datetime | str | None = None,
    delay: timedelta | str | None = None,
    request_id: str | None = None,
    key: bytes | None = None,
    headers: Headers = (),
    partition: int | None = None,
    expires_at: datetime | str | None = None,
    spread: timedelta | str | None = None,
) -> Request:
    """A request to deliver `value` to the topic `to`, at a time or after a delay.

    Text is taken as it is, a datetime without a zone as UTC.
    """
    if (deliver_at is None) == (delay is None):
        raise RequestError("Exactly one of deliver_at and delay is wanted.")
    wanted = (
        (names.ACTION, action),
        (names.DELIVER_TO, to),
        (names.DELIVER_AT, _moment(deliver_at)),
        (names.DELAY, _duration(delay)),
        (names.REQUEST_ID, request_id),
        (names.DELIVER_PARTITION, None if partition is None else str(partition)),
        (names.EXPIRES_AT, _moment(expires_at)),
        (names.SPREAD, _duration(spread)),
    )
    return Request(key, value, [*headers, *_encoded(wanted)])


def cancel_request(request_id: str, *, key: bytes | None = None) -> Request:
    """A request to forget a pending one; give the key that was given then, for the order's sake."""
    return _request_about(request_id, action="CANCEL", key=key)


def pause_request(request_id: str, *, key: bytes | None = None) -> Request:
    """A request to hold a pending one back, also when it falls due, until it is resumed."""
    return _request_about(request_id, action="PAUSE", key=key)


def resume_request(request_id: str, *, key: bytes | None = None) -> Request:
    """A request to let a paused one go on."""
    return _request_about(request_id, action="RESUME", key=key)


def _request_about(request_id: str, *, action: str, key: bytes | None) -> Request:
    return Request(key, None, _encoded(((names.ACTION, action), (names.REQUEST_ID, request_id))))


class Client:
    """Produces requests for one app id."""

    def __init__(self, settings: Settings, *, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Connects in the background."""
        self._topic = settings.topics.requests
        self._servers = settings.bootstrap_servers
        self._timeout = timeout
        self._topic_seen = False
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

    def send(self, request: Request) -> Placed:
        """Produce one request and wait until Kafka has it."""
        return self.send_all([request])[0]

    def send_all(self, requests: Iterable[Request]) -> list[Placed]:
        """Produce requests, in order, and wait until Kafka has them all."""
        self._check_topic()
        wanted = list(requests)
        reports: dict[int, tuple[KafkaError | None, Message]] = {}
        for index, request in enumerate(wanted):
            self._produce(request, reports, index=index)
        self._producer.flush(self._timeout)
        for index, (error, _) in sorted(reports.items()):
            if error is not None:
                raise self._failure(error, keyless=wanted[index].key is None)
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
                    self._topic,
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
                raise self._failure(error.args[0]) from error

    def _check_topic(self) -> None:
        """A full listing makes no topic; producing to a missing one could, on some brokers."""
        if self._topic_seen:
            return
        try:
            found = self._producer.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        if self._topic not in found:
            raise RequestError(
                f"There is no topic {self._topic} on Kafka at {self._servers}: "
                "check the app id, or make it with `punctual topics`."
            )
        self._topic_seen = True

    def _failure(self, error: KafkaError, *, keyless: bool = False) -> RequestError:
        if keyless and error.code() == KafkaError.INVALID_RECORD:
            return RequestError(
                f"Kafka does not take a request without a key for {self._topic}, because that "
                "topic is compacted: give a key, or set requests-cleanup-policy and "
                "rejections-cleanup-policy to delete."
            )
        return RequestError(
            f"Kafka at {self._servers} did not take the request for {self._topic}: {error.str()}."
        )


def _placed(message: Message) -> Placed:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise RequestError("Kafka acknowledged a request without saying where it is.")
    return Placed(topic, partition, offset)


def _encoded(wanted: Iterable[tuple[str, str | None]]) -> list[tuple[str, bytes | None]]:
    return [(name, text.encode()) for name, text in wanted if text is not None]


def _moment(moment: datetime | str | None) -> str | None:
    if not isinstance(moment, datetime):
        return moment
    return format_ms(to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC)))


def _duration(duration: timedelta | str | None) -> str | None:
    if not isinstance(duration, timedelta):
        return duration
    return f"{duration // timedelta(milliseconds=1)}ms"
