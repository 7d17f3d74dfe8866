"""Deciding one turn of one partition. Pure: reads a table, changes nothing.

A turn takes a batch of the log in, decides every action, collects what is due, and says what has to
be written in one transaction, and what to change in the table once that is committed. If the
transaction fails, the outcome is thrown away and nothing has happened.
"""

import heapq
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final

from punctual_worker.contract import actions
from punctual_worker.contract.actions import Verb
from punctual_worker.contract.codes import Code
from punctual_worker.dispatch import entries, recurrence
from punctual_worker.dispatch.book import Book
from punctual_worker.dispatch.deliveries import Delivery, entry_of, row_bytes
from punctual_worker.dispatch.entries import Entry, LogRecord
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.verdicts import Budget, Judgement, Verdict

_MAX_BACKOFF_MS: Final = 60_000


class PartitionTurn(Book):
    """One turn: `take_in`, then `collect`, then `finish`. Made anew for each turn."""

    def take_in(self, records: Iterable[LogRecord]) -> None:
        """Decide a batch of the log, in its order."""
        for record in records:
            if record.offset < self._before.position:
                continue  # the client began too early
            self._position = record.offset + 1
            if record.value is None or entries.is_own(record.key):
                continue  # written by an owner of this partition: the table knows it already
            coordinates = actions.request_coordinates(record.key)
            try:
                entry = entries.read_entry(record)
            except actions.InvalidPlanError:
                coordinates = None
            if coordinates is None:
                self._count("foreign")
            elif self._seen(coordinates):
                self._take_replay(entry, record.timestamp_ms)
            else:
                tag, partition, offset = coordinates
                self._watermarks.setdefault(tag, {})[partition] = offset
                self._decide(entry)

    def collect_ready(self, budget: Budget) -> None:
        """Fire what is due and was made ready, so that a transaction is filled from all partitions
        before anything has to be read for it."""
        self._fire_together(actions.order_key(self._now_ms + 1, b""), budget)

    def collect(self, budget: Budget) -> None:
        """Fire what is due, in order, as far as the budget goes.

        To be called when every partition of the transaction has taken its batch in, so that a
        destination on probation is tried alone.
        """
        until = actions.order_key(self._now_ms + 1, b"")
        while self._fire_together(until, budget) and self._ahead.extend(until=until):
            pass
        for order, delivery in self._due(until):
            if budget.spent:
                self._out.more = True
                return
            entry = entry_of(delivery)
            verdict = self._judge.judge(entry)
            if verdict.judgement is Judgement.PROBE:
                if budget.delivered:
                    self._out.more = True
                    return
                budget.closed = True
                self._out.more = True
            budget.spend(1, row_bytes(delivery))
            self._cursor = order
            self._fire(entry, delivery, verdict)

    @property
    def delivered_at_once(self) -> int:
        """How many deliveries taking in has led to; they count against the budget."""
        return len(self._out.deliveries)

    def finish(self) -> Outcome:
        """What to write; the caller settles `changes` after the commit."""
        for verb in set(self._verbs):
            self._out.counts["request", verb.name] += self._verbs.count(verb)
        self._out.checkpoint = self._before.moved(
            position=self._position,
            cursor=self._cursor,
            watermarks=self._watermarks,
            writer=self._policy.writer,
        )
        return self._out

    # deciding

    def _seen(self, coordinates: actions.Coordinates) -> bool:
        marks = self._watermarks.get(coordinates.source_tag)
        return marks is not None and coordinates.offset <= marks.get(coordinates.partition, -1)

    def _take_replay(self, entry: Entry, written_ms: int) -> None:
        """Intake sent it again. If the first copy is pending, the log needs this one no more than
        that one; if it was decided or fired, this copy must not come back to life."""
        self._count("replay")
        self._out.replays += 1
        if self._is_pending(entry.order):
            return
        compacted = self._now_ms - written_ms > self._policy.compaction_lag_ms
        plan = entry.plan
        recognisable = bool(plan.request_id) or not plan.cron
        if compacted and plan.verb.delivers and recognisable:
            # So far behind that compaction may have taken the first copy before anybody decided
            # it: deliver rather than drop. That the cursor has passed its place proves nothing:
            # later requests may have moved watermark and cursor over what was never read.
            # Not so a recurring one without id: nothing tells whether it is running already, and a
            # second run beside the first would deliver everything twice for good.
            self._out.changes.perhaps_there = True
            self._decide(entry)
        else:
            self._out.tombstones.append(entry)

    def _decide(self, entry: Entry) -> None:
        plan = entry.plan
        self._verbs.append(plan.verb)
        standing = self._find(plan.request_id) if plan.request_id else None
        if not plan.verb.delivers:
            self._steer(entry, standing)
        elif plan.cron and (fault := _fault_of(plan)):
            self._reject(entry, fault.code, str(fault))
            self._out.tombstones.append(entry)
        elif standing is None:
            self._arm(entry)
        elif entries.same_request(standing, entry):
            self._count("replace_noop" if plan.verb is Verb.REPLACE else "add_noop")
            self._tell("Unchanged", entry)
            self._out.tombstones.append(entry)
        elif plan.verb is Verb.ADD:
            self._reject(
                entry,
                Code.REQUEST_ID_IN_USE,
                f"x-scheduler-request-id {plan.request_id!r} is pending with other content:"
                " want REPLACE, or another id",
            )
            self._out.tombstones.append(entry)
        else:
            self._count("replaced")
            self._remove(standing)
            self._tell("Replaced", standing, reason=self._by(entry))
            self._arm(entry)

    def _steer(self, entry: Entry, standing: Entry | None) -> None:
        """CANCEL, PAUSE or RESUME: something is done to the pending schedule of the id, if any."""
        verb = entry.plan.verb
        self._out.tombstones.append(entry)
        if standing is None:
            self._count(f"{verb.name.lower()}_missed")
            self._tell(f"{verb.name.capitalize()}Missed", entry)
        elif verb is Verb.CANCEL:
            self._remove(standing)
            self._count("cancelled")
            self._tell("Cancelled", standing, reason=self._by(entry))
        elif standing.plan.paused == (verb is Verb.PAUSE):
            self._tell("Unchanged", entry)
        elif verb is Verb.PAUSE:
            self._remove(standing)
            self._rearm(
                standing._replace(plan=standing.plan.pause()),
                due_ms=actions.NEVER_MS,
                attempt=standing.plan.attempt,
            )
            self._count("paused")
            self._tell("Paused", standing, reason=self._by(entry))
        else:
            self._resume(standing)
            self._count("resumed")
            self._tell("Resumed", standing, reason=self._by(entry))

    def _resume(self, standing: Entry) -> None:
        """Back to its time; what fell due meanwhile is late, like after an outage."""
        self._remove(standing)
        going_on = standing._replace(plan=standing.plan.resume())
        due_ms = going_on.plan.wanted_ms + entries.recurring_spread_ms(going_on)
        self._rearm(going_on, due_ms=max(due_ms, self._now_ms + 1), attempt=going_on.plan.attempt)

    def _by(self, entry: Entry) -> str:
        source = entries.source_of(entry, self._policy.requests_topic).decode()
        return f"by {entry.plan.verb.name} {source}"

    def _arm(self, entry: Entry) -> None:
        self._tell("Scheduled", entry)
        if entry.plan.cron:
            # Its record only says when to begin: each fire is a record of the dispatcher's own.
            self._out.tombstones.append(entry)
            self._await_fire(entry, recurrence.first_fire(entry.plan, self._now_ms))
            return
        order = entry.order
        if order > self._before.cursor:
            self._put(order, entry)
            return
        # The cursor has passed its place: it fires in the transaction that takes it in, or never.
        verdict = self._judge.judge(entry)
        self._out.changes.puts[order] = None
        if entry.plan.request_id:
            self._pending_ids[entry.plan.request_id] = None
        if verdict.judgement is Judgement.PROBE:
            self._rearm(entry, due_ms=self._now_ms + 1, attempt=entry.plan.attempt)
        else:
            self._fire(entry, self._policy.render(entry), verdict)

    # firing

    def _fire_together(self, until: bytes, budget: Budget) -> bool:
        """Fire those at the head that are ready and alike, thousands of them at one go; whether
        what is read further may be alike, too.

        What is left, or if this turn itself has put or removed something that is due: one by one.
        """
        changes = self._out.changes
        touched = any(order < until for order in changes.puts) or any(
            order < until for order in changes.removes
        )
        if touched or self._policy.history or budget.spent:
            return False
        run = self._ahead.plain_run(
            until, budget.remaining, most_bytes=budget.remaining_bytes, after=self._cursor
        )
        if not run.deliveries:
            return run.goes_on
        if not self._judge.all_ready(run.destinations):
            return False
        count = len(run.deliveries)
        budget.spend(count, run.row_bytes)
        self._cursor = run.last
        self._out.fired += count
        self._out.deliveries += run.deliveries
        self._out.counts["delivered", ""] += count
        return run.goes_on and not budget.spent

    def _fire(self, entry: Entry, delivery: Delivery, verdict: Verdict) -> None:
        plan = entry.plan
        staged = self._out.changes.puts
        if staged and entry.order in staged:
            staged[entry.order] = None
        if plan.request_id:
            self._pending_ids[plan.request_id] = None
        self._out.fired += 1
        if plan.expires_ms is not None and self._now_ms > plan.expires_ms:
            self._expire(entry, plan.expires_ms)
            return
        if plan.cron and recurrence.is_skipped(plan, self._unspread_ms(entry)):
            self._count("skipped")
        elif verdict.judgement is Judgement.DEFER:
            if self._retry(entry, verdict):
                return  # the next fire waits until this one is delivered or given up
        else:
            self._count("delivered")
            self._out.deliveries.append(delivery)
            self._tell("Delivered", entry)
        if plan.cron:
            now_ms = self._unspread_ms(entry)
            self._await_fire(entry, recurrence.fire_after(plan, plan.wanted_ms, now_ms))

    def _unspread_ms(self, entry: Entry) -> int:
        """Now, by the fires as the expression has them: a fire is not late by its own spread."""
        return self._now_ms - entries.recurring_spread_ms(entry)

    def _expire(self, entry: Entry, expires_ms: int) -> None:
        self._count("expired")
        late_ms = self._now_ms - expires_ms
        sentence = f"not delivered: it expired {late_ms} ms before its turn came"
        self._reject(entry, Code.EXPIRED, sentence, event="Expired")

    def _retry(self, entry: Entry, verdict: Verdict) -> bool:
        """Whether it is tried again; if not, it is rejected."""
        attempt = entry.plan.attempt + 1
        self._count("delivery_failure", verdict.code)
        if attempt >= self._policy.attempts:
            self._reject(entry, verdict.code, f"{verdict.reason}; given up after {attempt} tries")
            return False
        backoff_ms = min(self._policy.backoff_ms << min(attempt - 1, 32), _MAX_BACKOFF_MS)
        self._rearm(entry, due_ms=self._now_ms + backoff_ms, attempt=attempt)
        self._tell("Retrying", entry, reason=verdict.reason)
        return True

    def _await_fire(self, entry: Entry, fire_ms: int) -> None:
        """Arm a recurring schedule for its next fire, at once if that is overdue."""
        due_ms = fire_ms + entries.recurring_spread_ms(entry)
        self._rearm(
            entry, due_ms=max(due_ms, self._now_ms + 1), attempt=0, scheduled_for_ms=fire_ms
        )

    def _due(self, until: bytes) -> Iterator[tuple[bytes, Delivery]]:
        """Due entries of the table and of this turn, in order, one by one."""
        changes = self._out.changes
        ahead = self._ahead.due(until, after=self._cursor)
        if not changes.puts and not changes.removes:
            return ahead
        staged = sorted(
            (order, entry)
            for order, entry in changes.puts.items()
            if entry is not None and self._cursor < order < until
        )
        rendered = ((order, self._policy.render(entry)) for order, entry in staged)
        known = (
            (order, delivery)
            for order, delivery in ahead
            if order not in changes.removes and order not in changes.puts
        )
        return heapq.merge(rendered, known, key=itemgetter(0))


def _fault_of(plan: actions.Plan) -> recurrence.RecurrenceError | None:
    """What is wrong with a recurring plan that intake's expressions could not see."""
    try:
        recurrence.next_fire(plan, plan.due_ms)
    except recurrence.RecurrenceError as error:
        return error
    return None
