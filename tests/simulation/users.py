"""Users who send requests, and intake which turns them into actions at least once.

Intake keeps the order of each request partition and never leaves a hole: what reaches an actions
partition is a prefix of what was sent to it, then, after a crash, the same again from earlier on.
Two lives of intake may overlap, as when an executor is declared dead and is not.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Final

from punctual_worker.contract import actions
from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import Coordinates, Plan, Verb
from simulation.ledger import Request
from simulation.oracle import Oracle

DESTINATIONS: Final = ("orders", "mails", "bills")
_GRID_MS: Final = 1_000
CRON: Final = {
    1_000: "* * * * * *",
    5_000: "*/5 * * * * *",
    20_000: "*/20 * * * * *",
    60_000: "* * * * *",
    21_600_000: "0 */6 * * *",
}
"""Expressions by milliseconds from fire to fire."""
_SHORT_MS: Final = (5_000, 20_000, 60_000)
_LONG_MS: Final = 21_600_000
_VERBS: Final = ("ADD", "ADD", "ADD", "REPLACE", "REPLACE", "CANCEL")
_DELIVERING: Final = ("ADD", "REPLACE")


class Users:
    """Requests on few ids, so that they collide."""

    def __init__(
        self,
        *,
        rng: random.Random,
        partitions: int,
        clock: Callable[[], int],
        oracle: Oracle,
        whims: random.Random,
        recurring: float,
        pausing: float,
    ) -> None:
        """`recurring` is the share of recurring schedules, and `pausing` that of PAUSE and RESUME
        among the requests; `whims` draws both: worlds without any are what they would be if there
        were no such thing."""
        self.sent: list[list[Request]] = [[] for _ in range(partitions)]
        self._rng = rng
        self._clock = clock
        self._oracle = oracle
        self._ids = [f"id-{number}" for number in range(rng.choice((1, 2, 3, 5)))]
        self._past = rng.choice((0.1, 0.3, 0.6))
        self._whims = whims
        self._recurring = recurring
        self._pausing = pausing
        self.days_may_pass = False
        """Then nobody asks for every fire of a short interval: there would be thousands."""

    def send(self) -> Request:
        """One more request."""
        rng = self._rng
        verb = rng.choice(_VERBS)
        if self._whims.random() < self._pausing:
            verb = self._whims.choice(("PAUSE", "PAUSE", "RESUME"))
        request_id = rng.choice(self._ids) if verb != "ADD" or rng.random() < 0.6 else ""
        partition = (
            self._ids.index(request_id) % len(self.sent)
            if request_id and rng.random() < 0.8
            else rng.randrange(len(self.sent))
        )
        key = actions.action_key(Coordinates("0", partition, len(self.sent[partition])))
        earlier = [
            one
            for one in self.sent[partition]
            if request_id and one.schedule_id == request_id and one.verb in _DELIVERING
        ]
        if earlier and verb in _DELIVERING and rng.random() < 0.3:
            request = earlier[-1]._replace(key=key, verb=verb)
            if request.every_ms:
                request = self._again(request)
        else:
            request = self._fresh(key, verb, request_id)
        self.sent[partition].append(request)
        self._oracle.asked(request)
        return request

    def resume_all(self) -> list[Request]:
        """Let nothing wait any longer."""
        return [self.steer("RESUME", request_id) for request_id in self._ids]

    def steer(self, verb: str, request_id: str) -> Request:
        """CANCEL, PAUSE or RESUME an id."""
        sent = self.sent[0]
        key = actions.action_key(Coordinates("0", 0, len(sent)))
        request = Request(key, verb, request_id, 0, "", None, None)
        sent.append(request)
        self._oracle.asked(request)
        return request

    def _recur(self, single: Request) -> Request:
        """The same, again and again; for ever only where it can be cancelled, or rarely fires."""
        whims, now_ms = self._whims, self._clock()
        misfire = whims.choice(("once", "all", "skip"))
        every_ms = whims.choice((*_SHORT_MS, 1_000) if misfire == "once" else _SHORT_MS)
        if self.days_may_pass and (misfire == "all" or whims.random() < 0.3):
            every_ms = _LONG_MS
        elif misfire == "all":
            every_ms = max(every_ms, 20_000)
        ends = whims.random() < (0.2 if single.has_id or every_ms > 5_000 else 1)
        lasts_ms = whims.choice((4, 12, 40)) * every_ms
        return single._replace(
            due_ms=now_ms,
            expires_ms=now_ms + lasts_ms if ends else None,
            every_ms=every_ms,
            misfire=misfire,
            spread_ms=whims.choice((0, 0, 0, 3_000, 60_000)),
        )

    def _again(self, recurring: Request) -> Request:
        """The same once more, or almost the same."""
        request = recurring._replace(due_ms=self._clock())
        other = self._whims.choice(("", "", "spread", "misfire"))
        if other == "spread":
            return request._replace(spread_ms=0 if request.spread_ms else 60_000)
        if other == "misfire" and request.misfire != "all":
            return request._replace(misfire="once" if request.misfire == "skip" else "skip")
        return request

    def _fresh(self, key: bytes, verb: str, request_id: str) -> Request:
        rng, now_ms = self._rng, self._clock()
        if verb not in _DELIVERING:
            return Request(key, verb, request_id, 0, "", None, None)
        away = -90 if rng.random() < self._past else rng.choice((3, 6, 20, 60, 150, 1_000))
        seconds = rng.randint(min(away, 0), max(away, 0))
        due_ms = (now_ms // _GRID_MS + seconds) * _GRID_MS
        single = Request(
            key,
            verb,
            request_id or key.decode(),
            due_ms,
            rng.choice(DESTINATIONS),
            rng.choice((b"one", b"two", b"", None)),
            due_ms + rng.choice((0, 3_000, 30_000)) if rng.random() < 0.12 else None,
        )
        return self._recur(single) if self._whims.random() < self._recurring else single


def plan_of(request: Request) -> Plan:
    """The request in normal form, as intake would put it."""
    return Plan(
        verb=Verb[request.verb],
        due_ms=request.due_ms,
        destination=request.destination,
        request_id=request.schedule_id if request.has_id else "",
        expires_ms=request.expires_ms,
        flags=actions.NULL_VALUE if request.value is None else "",
        misfire=request.misfire,
        cron=CRON[request.every_ms] if request.every_ms else "",
    )


def headers_of(request: Request) -> actions.Headers:
    """The headers that the dispatcher reads again."""
    spread = f"{request.spread_ms}ms".encode()
    return [(names.SPREAD, spread)] if request.spread_ms else []


class Intake:
    """One life of intake."""

    def __init__(self, users: Users, start: list[int], partitions: int) -> None:
        self._users = users
        self.at = list(start)
        """Next request to read, by request partition."""
        self._waiting: list[deque[Request]] = [deque() for _ in range(partitions)]
        """Read and not yet written, by actions partition."""

    def read(self, rng: random.Random) -> bool:
        """Take the next request of some partition; False if there is none."""
        behind = [
            partition
            for partition, sent in enumerate(self._users.sent)
            if self.at[partition] < len(sent)
        ]
        if not behind:
            return False
        partition = rng.choice(behind)
        request = self._users.sent[partition][self.at[partition]]
        self.at[partition] += 1
        target = actions.actions_partition(request.schedule_id.encode(), len(self._waiting))
        self._waiting[target].append(request)
        return True

    def write(self, rng: random.Random) -> tuple[int, Request] | None:
        """The next request that reaches an actions partition, and which one."""
        ready = [partition for partition, queue in enumerate(self._waiting) if queue]
        if not ready:
            return None
        partition = rng.choice(ready)
        return partition, self._waiting[partition].popleft()

    @property
    def idle(self) -> bool:
        """Whether all that was read is written: then, and only then, its offsets may be kept."""
        return not any(self._waiting)
