"""What users do meanwhile: ADD, REPLACE and CANCEL mixed, remembered with where each one stands."""

import random
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from support.kafka import new_producer

IDS = 300
PER_SECOND = 40
PROBES = 20


@dataclass(frozen=True)
class Request:
    """A request that Kafka has acknowledged."""

    source: str
    partition: int
    offset: int
    at_ms: int
    verb: str
    id: str
    due_ms: int
    destination: str
    value: bytes

    def same_as(self, other: "Request") -> bool:
        """Whether the scheduler must take one for a repetition of the other."""
        mine = (self.due_ms, self.destination, self.value)
        return mine == (other.due_ms, other.destination, other.value)


class Load:
    """A producer in a thread of its own, until told to stop."""

    def __init__(
        self, bootstrap_servers: str, topic: str, destinations: list[str], flaky: str, seed: int
    ) -> None:
        self.requests: list[Request] = []
        self.errors: list[str] = []
        self._topic = topic
        self._destinations = destinations
        self._flaky = flaky
        self._random = random.Random(f"load {seed}")
        self._last: dict[str, tuple[int, str, bytes]] = {}
        self._count = 0
        self._stop = threading.Event()
        self._producer = new_producer(bootstrap_servers, **{"delivery.timeout.ms": 300_000})
        self._thread = threading.Thread(target=self._run, name="load")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No more requests; every one that was sent is acknowledged on return."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert not left, f"{left} requests not acknowledged: {self.errors[:3]}"
        assert not self.errors, self.errors[:3]

    def probe(self, destination: str) -> set[bytes]:
        """Messages through every partition, due at once; their values."""
        values = {b"probe-%d-%d" % (len(self.requests), n) for n in range(PROBES)}
        for value in values:
            self._produce("ADD", "", time.time_ns() // 1_000_000, destination, value)
        return values

    def _run(self) -> None:
        while not self._stop.wait(self._random.expovariate(PER_SECOND)):
            self._send()
            self._producer.poll(0)

    def _send(self) -> None:
        pick = self._random
        self._count += 1
        now = time.time_ns() // 1_000_000
        due = now + pick.randint(300, 12_000)
        destination = self._flaky if pick.random() < 0.08 else pick.choice(self._destinations)
        value = b"%d" % self._count
        if pick.random() < 0.5:
            self._produce("ADD", "", due, destination, value)
            return
        request_id = f"id-{pick.randrange(IDS)}"
        verb = pick.choices(("ADD", "REPLACE", "CANCEL"), (4, 3, 2))[0]
        if request_id in self._last and verb != "CANCEL" and pick.random() < 0.15:
            due, destination, value = self._last[request_id]  # a producer's retry
        self._last[request_id] = (due, destination, value)
        self._produce(verb, request_id, due, destination, value)

    def _produce(
        self, verb: str, request_id: str, due_ms: int, destination: str, value: bytes
    ) -> None:
        headers = {"action": verb}
        if request_id:
            headers["request-id"] = request_id
        if verb != "CANCEL":
            moment = datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="milliseconds")
            headers |= {"deliver-to": destination, "deliver-at": moment}

        def placed(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(str(error))
                return
            where = (message.topic(), message.partition(), message.offset())
            self.requests.append(
                Request(
                    "{}/{}/{}".format(*where),
                    *where[1:],
                    message.timestamp()[1],
                    verb,
                    request_id,
                    due_ms,
                    destination,
                    value,
                )
            )

        self._producer.produce(
            self._topic,
            value=value,
            key=request_id.encode() or value,
            headers=[(f"x-scheduler-{name}", text.encode()) for name, text in headers.items()],
            on_delivery=placed,
        )
