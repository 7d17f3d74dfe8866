"""A Scheduler as its users have it: requests go in, messages come out."""

import time
from dataclasses import dataclass
from typing import Any

from punctual_worker.contract.topics import TopicNames
from support.kafka import Record, consume_committed, produce
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.schedulers import KIND
from support.scheduler import at


@dataclass(frozen=True)
class Users:
    """Of one Scheduler, whose app id is its name."""

    kubectl: Kubectl
    servers: str
    name: str

    def schedule(self, destination: str, delays: dict[str, float]) -> dict[str, float]:
        """Requests by their values; when each is due, in seconds since 1970."""
        now = time.time()
        requests = [_request(destination, value, delay) for value, delay in delays.items()]
        produce(self.servers, TopicNames(self.name).requests, requests)
        return {value: now + delay for value, delay in delays.items()}

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.get(KIND, self.name)["status"]
        return found


def _request(destination: str, value: str, delay: float) -> Record:
    headers = {"deliver-to": destination, "deliver-at": at(delay), "request-id": value}
    return Record(
        value=value.encode(),
        key=value.encode(),
        headers=[(f"x-scheduler-{name}", text.encode()) for name, text in headers.items()],
    )


def assert_exactly_these(users: Users, destination: str, due: dict[str, float]) -> None:
    """Each once, none before its time."""
    found = consume_committed(users.servers, destination, len(due), timeout=120, settle=3)
    assert sorted(_text(record) for record in found) == sorted(due)
    late = [record.timestamp_ms / 1000 - due[_text(record)] for record in found]
    print(f"\n{len(found)} messages, at most {max(late) * 1000:.0f} ms late")
    assert min(late) >= -0.001


def _text(record: Record) -> str:
    return (record.value or b"").decode()


def restarts(pod: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
