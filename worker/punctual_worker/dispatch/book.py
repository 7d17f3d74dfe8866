"""What one turn of a partition knows and writes down, before anything of it happens. Pure.

The bookkeeping below the decisions of `timetable`: what is staged, what a request id stands for
meanwhile, and what the log, the rejections topic and history are to be told.
"""

from punctual_worker.contract import actions
from punctual_worker.contract.actions import Verb
from punctual_worker.contract.codes import Code
from punctual_worker.dispatch import entries
from punctual_worker.dispatch.ahead import ReadAhead
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.table import Table
from punctual_worker.dispatch.verdicts import Judge


class Book:
    """Reads the table, changes nothing but its own outcome."""

    def __init__(
        self,
        table: Table,
        checkpoint: Checkpoint,
        *,
        ahead: ReadAhead,
        policy: Policy,
        judge: Judge,
        now_ms: int,
    ) -> None:
        if now_ms < checkpoint.cursor_ms:
            raise ValueError("this clock is behind the cursor: wait, a turn now would fire early")
        self._table = table
        self._ahead = ahead
        self._before = checkpoint
        self._policy = policy
        self._judge = judge
        self._now_ms = now_ms
        self._cursor = checkpoint.cursor
        self._position = checkpoint.position
        self._watermarks = {tag: dict(marks) for tag, marks in checkpoint.watermarks.items()}
        self._pending_ids: dict[str, Entry | None] = {}
        """What this turn knows better than the table: the pending entry of an id, or none."""
        self._out = Outcome(checkpoint)
        self._verbs: list[Verb] = []
        """What was asked for; counted at the end."""

    def _put(self, order: bytes, entry: Entry) -> None:
        self._out.changes.put(order, entry)
        if entry.plan.request_id:
            self._pending_ids[entry.plan.request_id] = entry

    def _remove(self, entry: Entry) -> None:
        self._out.changes.remove(entry.order, entry.plan.request_id)
        self._pending_ids[entry.plan.request_id] = None
        self._out.tombstones.append(entry)

    def _find(self, request_id: str) -> Entry | None:
        """The pending entry of an id."""
        if request_id in self._pending_ids:
            return self._pending_ids[request_id]
        for order in self._table.find(request_id):
            if order > self._before.cursor:
                return self._table.get(order)
        return None

    def _is_pending(self, order: bytes) -> bool:
        changes = self._out.changes
        if order in changes.removes:
            return False
        if order in changes.puts:
            return changes.puts[order] is not None
        return order > self._before.cursor and self._table.get(order) is not None

    def _rearm(
        self, entry: Entry, *, due_ms: int, attempt: int, scheduled_for_ms: int | None = None
    ) -> None:
        """Try again later: a new record, due after the cursor, in the table at once."""
        parsed = actions.parse_action_key(entry.key)
        assert parsed is not None, "every entry came in under an action key"  # noqa: S101
        coordinates, count = parsed
        wanted_ms = entry.plan.wanted_ms if scheduled_for_ms is None else scheduled_for_ms
        again = entry._replace(
            key=actions.action_key(coordinates, count + 1),
            plan=entry.plan._replace(due_ms=due_ms, attempt=attempt, scheduled_for_ms=wanted_ms),
        )
        self._out.rearmed.append(again)
        self._put(again.order, again)

    def _reject(self, entry: Entry, code: Code, sentence: str, event: str = "Rejected") -> None:
        self._count("rejection", code)
        self._out.rejections.append(
            entries.reject(
                entry,
                code,
                sentence,
                requests_topic=self._policy.requests_topic,
                now_ms=self._now_ms,
            )
        )
        self._tell(event, entry, reason=sentence)

    def _tell(self, event: str, entry: Entry, reason: str = "") -> None:
        if self._policy.history:
            self._out.events.append(
                entries.tell(
                    event,
                    entry,
                    requests_topic=self._policy.requests_topic,
                    now_ms=self._now_ms,
                    reason=reason,
                )
            )

    def _count(self, what: str, label: str = "") -> None:
        self._out.counts[what, label] += 1
