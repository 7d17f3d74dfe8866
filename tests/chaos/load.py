"""What users do meanwhile: ADD, REPLACE and CANCEL mixed, remembered with where each one stands.

Beside these, stories: schedules under ids of their own that recur until they are cancelled, or are
paused and resumed.
"""

import heapq
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
STORY = "story-"
RECURRING_SHARE = 0.012
PAUSED_SHARE = 0.02
"""How often, beside an ordinary request, a story begins."""


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
    every_ms: int = 0
    """Time between the fires of a recurring one."""

    @property
    def delivers(self) -> bool:
        return self.verb in ("ADD", "REPLACE")

    @property
    def is_of_a_story(self) -> bool:
        return self.id.startswith(STORY)

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
        self._to_come: list[tuple[float, int, str, str]] = []
        """When, to keep the order of equal times, verb and id of what goes on in stories."""
        self._stop = threading.Event()
        self._producer = new_producer(bootstrap_servers, **{"delivery.timeout.ms": 300_000})
        self._thread = threading.Thread(target=self._run, name="load")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No more requests; every one that was sent is acknowledged on return."""
        self._stop.set()
        self._thread.join()
        self._go_on(until=float("inf"))
        left = self._producer.flush(60)
        assert not left, f"{left} requests not acknowledged: {self.errors[:3]}"
        assert not self.errors, self.errors[:3]

    def probe(self, destination: str) -> set[bytes]:
        """Messages through every partition, due at once; their values."""
        values = {b"probe-%d-%d" % (len(self.requests), n) for n in range(PROBES)}
        for value in values:
            self._produce("ADD", "", now_ms(), destination, value)
        return values

    def _run(self) -> None:
        while not self._stop.wait(self._random.expovariate(PER_SECOND)):
            self._send()
            if self._random.random() < RECURRING_SHARE:
                self._begin_recurring()
            if self._random.random() < PAUSED_SHARE:
                self._begin_paused()
            self._go_on(until=time.monotonic())
            self._producer.poll(0)

    def _begin_recurring(self) -> None:
        pick = self._random
        ends = pick.uniform(4, 20)
        steps = {"CANCEL": ends}
        if pick.random() < 0.4:
            begins = pick.uniform(0.5, ends / 2)
            steps = {"PAUSE": begins, "RESUME": pick.uniform(begins, ends), **steps}
        self._begin(steps, now_ms(), every_ms=pick.choice((1_000, 2_000)))

    def _begin_paused(self) -> None:
        pick = self._random
        begins = pick.uniform(0.1, 3)
        steps = {"PAUSE": begins, "RESUME": begins + pick.uniform(1, 12)}
        self._begin(steps, now_ms() + pick.randint(1_500, 8_000))

    def _begin(self, steps: dict[str, float], due_ms: int, *, every_ms: int = 0) -> None:
        self._count += 1
        request_id = f"{STORY}{self._count}"
        destination = self._random.choice(self._destinations)
        self._produce(
            "ADD", request_id, due_ms, destination, b"%d" % self._count, every_ms=every_ms
        )
        for order, (verb, after) in enumerate(steps.items()):
            heapq.heappush(self._to_come, (time.monotonic() + after, order, verb, request_id))

    def _go_on(self, *, until: float) -> None:
        while self._to_come and self._to_come[0][0] <= until:
            _, _, verb, request_id = heapq.heappop(self._to_come)
            self._count += 1
            self._produce(verb, request_id, now_ms(), "", b"%d" % self._count)

    def _send(self) -> None:
        pick = self._random
        self._count += 1
        due = now_ms() + pick.randint(300, 12_000)
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
        self,
        verb: str,
        request_id: str,
        due_ms: int,
        destination: str,
        value: bytes,
        *,
        every_ms: int = 0,
    ) -> None:
        headers = {"action": verb}
        if request_id:
            headers["request-id"] = request_id
        if every_ms:
            cron = f"*/{every_ms // 1000} * * * * *"
            headers |= {"deliver-to": destination, "cron": cron, "misfire": "all"}
        elif verb in ("ADD", "REPLACE"):
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
                    every_ms,
                )
            )

        self._producer.produce(
            self._topic,
            value=value,
            key=request_id.encode() or value,
            headers=[(f"x-scheduler-{name}", text.encode()) for name, text in headers.items()],
            on_delivery=placed,
        )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
