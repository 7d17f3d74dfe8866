"""Writing: requests into the requests topic like anybody's, and waiting until the view shows it."""

import logging
import threading
import time
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter

from punctual_worker.client import Client, Request
from punctual_worker.console.checkpoints import Checkpoints, cursor_of
from punctual_worker.console.effects import Effects, Seen, Watch
from punctual_worker.console.queries import Queries
from punctual_worker.console.rows import PendingRow
from punctual_worker.contract.actions import NATIVE_SOURCE
from punctual_worker.dispatch.checkpoint import Checkpoint

Outcome = Literal[
    "pending",
    "delivered",
    "retrying",
    "cancelled",
    "paused",
    "resumed",
    "missed",
    "unchanged",
    "rejected",
    "accepted",
    "requested",
]
Verb = Literal["create", "replace", "cancel", "pause", "resume", "reschedule", "run-now", "resend"]
_GRACE_SECONDS: Final = 0.3
"""The dispatcher's checkpoint may be seen a moment before the records of its transaction."""
_MOST_WAITING: Final = 16
"""More than so many at once are answered without waiting: those who only look have a turn too."""
_audit = logging.getLogger("punctual_worker.console.audit")


class Author(NamedTuple):
    """Who asks for a change."""

    user: str
    address: str


@dataclass(frozen=True)
class Effect:
    """What became of a request."""

    outcome: Outcome
    source: str
    """`topic/partition/offset` of the request."""
    took_ms: int
    codes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def seen(self) -> bool:
        """Whether the view has seen the end of it."""
        return self.outcome not in ("accepted", "requested")


class Writes:
    """Produces requests and tells what became of them. For any thread."""

    def __init__(
        self,
        client: Client,
        effects: Effects,
        checkpoints: Checkpoints,
        queries: Queries,
        registry: CollectorRegistry,
    ) -> None:
        self.client = client
        self._effects = effects
        self._checkpoints = checkpoints
        self._queries = queries
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self._counter = Counter(
            "punctual_console_writes",
            "Requests sent through the console",
            ("verb", "outcome"),
            registry=registry,
        )

    def send(
        self,
        request: Request,
        *,
        verb: Verb,
        author: Author,
        request_id: str | None,
        wait_seconds: float,
        before: PendingRow | None = None,
    ) -> Effect:
        """Send one request; `before` is what waited under its id, where it is about that."""
        began = time.monotonic()
        deadline = began + wait_seconds
        with self._effects.watch() as watch:
            placed = self.client.send(request)
            watch.aim(
                action_key=f"{NATIVE_SOURCE}/{placed.partition}/{placed.offset}",
                source=str(placed),
                about=before.action_key.partition("#")[0] if before else None,
            )
            may_wait = self._waiting.acquire(blocking=False)
            try:
                outcome = self._wait(
                    watch, deadline if may_wait else began, verb=verb, before=before
                )
            finally:
                if may_wait:
                    self._waiting.release()
            rejection = watch.seen.rejection
        effect = Effect(
            outcome,
            str(placed),
            int((time.monotonic() - began) * 1000),
            codes=tuple(rejection.codes.split(",")) if rejection else (),
            reason=rejection.reason if rejection else "",
        )
        self.audit(author, verb, id=request_id, source=effect.source, outcome=outcome)
        self._counter.labels(verb, outcome).inc()
        return effect

    def audit(self, author: Author, verb: str, **what: object) -> None:
        """A line for every change, with who and what; never the payload."""
        told = {"user": author.user, "address": author.address, **what}
        _audit.info("%s", verb, extra={name: _one_line(value) for name, value in told.items()})

    def _wait(
        self, watch: Watch, deadline: float, *, verb: Verb, before: PendingRow | None
    ) -> Outcome:
        decided = watch.wait(lambda seen: self._is_decided(seen), deadline=deadline)
        seen = watch.seen
        if seen.rejection is not None:
            return "rejected"
        if not decided:
            return "accepted" if seen.taken is not None else "requested"
        if before is not None and verb in ("pause", "resume"):
            return self._steered(watch, before, pause=verb == "pause", deadline=deadline)
        grace = time.monotonic() + _GRACE_SECONDS
        if watch.wait(lambda seen: seen.rejection is not None, deadline=grace):
            return "rejected"
        if verb == "cancel":
            fired = before is not None and self._has_fired(before)
            return "cancelled" if before is not None and not fired else "missed"
        return self._outcome(watch.seen)

    def _steered(
        self, watch: Watch, before: PendingRow, *, pause: bool, deadline: float
    ) -> Outcome:
        """What a PAUSE or RESUME that was decided has done to the schedule it is about."""

        def is_so(seen: Seen) -> bool:
            return watch.rearmed is not None and watch.rearmed.paused is pause

        def has_gone() -> bool:
            return not self._queries.find(before.id or "")

        if before.paused is not pause:
            watch.wait(lambda seen: is_so(seen) or has_gone(), deadline=deadline)
        # even then: the view may have changed a moment before the watch is told why
        grace = time.monotonic() + _GRACE_SECONDS
        if watch.wait(is_so, deadline=grace):
            return "paused" if pause else "resumed"
        if has_gone():
            return "missed"
        return "unchanged" if before.paused is pause else "accepted"

    def _outcome(self, seen: Seen) -> Outcome:
        if seen.rearmed is not None:  # also what recurs, which is pending then
            return "retrying" if seen.rearmed.attempt else "pending"
        row = seen.taken.row if seen.taken else None
        if row is not None and self._has_fired(row):
            return "delivered"
        return "pending" if seen.gone_due is None else "unchanged"

    def _is_decided(self, seen: Seen) -> bool:
        if seen.rejection is not None:
            return True
        if seen.taken is None:
            return False
        checkpoint = self._checkpoint(seen.taken.partition)
        return checkpoint is not None and checkpoint.position > seen.taken.offset

    def _has_fired(self, row: PendingRow) -> bool:
        checkpoint = self._checkpoint(row.partition)
        return checkpoint is not None and (row.due, row.action_key) <= cursor_of(checkpoint)

    def _checkpoint(self, partition: int) -> Checkpoint | None:
        return self._checkpoints.latest.get(partition)


def _one_line(value: object) -> object:
    """Nobody writes lines of their own into the log with an id or a user name."""
    return value.encode("unicode_escape").decode() if isinstance(value, str) else value
