"""Many at once: cancel, reschedule, pause or resume all that match, in the background.

The dry run writes down which schedules are meant, in a file of its own; the confirmation repeats
their number, and exactly these are dealt with, as far as they still wait. They are sorted by their
place in the log, so that their content is read in one pass.
"""

import contextlib
import itertools
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from punctual_worker.client import Request
from punctual_worker.console import records as log_records
from punctual_worker.console import requests
from punctual_worker.console.filters import Filters, Order
from punctual_worker.console.queries import Queries, place_of
from punctual_worker.console.records import RecordGoneError, Records
from punctual_worker.console.rows import PendingRow
from punctual_worker.console.writes import Author, Writes
from punctual_worker.errors import PunctualError

Verb = Literal["cancel", "reschedule", "pause", "resume"]
State = Literal["planned", "running", "done", "failed", "stopped"]
_CHUNK: Final = 1_000
_PLANS_KEPT: Final = 20
_PLAN_SECONDS: Final = 600.0
_SELECT_SECONDS: Final = 120.0


class BulkError(Exception):
    """The job is not what was asked for; the message says why."""


@dataclass(frozen=True)
class Job:
    """A job as it stands; replaced by another when it moves."""

    token: str
    verb: Verb
    filters: Filters
    deliver_at_ms: int | None
    shift_ms: int | None
    count: int
    """How many will be dealt with."""
    skipped: int
    """How many match but are left alone, as `is_meant` says."""
    user: str
    planned_at: float
    state: State = "planned"
    sent: int = 0
    gone: int = 0
    """How many did not wait any more when it was their turn."""
    error: str = ""


class Bulk:
    """Plans and runs jobs; one runs at a time."""

    def __init__(
        self,
        directory: Path,
        *,
        queries: Queries,
        records: Records,
        writes: Writes,
        actions_topic: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._queries = queries
        self._records = records
        self._writes = writes
        self._topic = actions_topic
        self._now_ms = now_ms
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob("job-*.db*"):
            leftover.unlink()

    def plan(
        self,
        verb: Verb,
        filters: Filters,
        *,
        author: Author,
        deliver_at_ms: int | None = None,
        shift_ms: int | None = None,
    ) -> Job:
        """The dry run: which ones are meant, and how many."""
        if verb == "reschedule" and (deliver_at_ms is None) == (shift_ms is None):
            raise BulkError("Say either to when or by how much to reschedule.")
        token = secrets.token_hex(8)
        count, skipped = self._select(token, verb, filters)
        job = Job(
            token,
            verb,
            filters,
            deliver_at_ms,
            shift_ms,
            count,
            skipped,
            author.user,
            time.monotonic(),
        )
        with self._lock:
            self._jobs[token] = job
            self._forget_old()
        return job

    def confirm(self, token: str, count: int, author: Author) -> Job:
        """Begin, if `count` is the number that the dry run has told."""
        with self._lock:
            job = self._jobs.get(token)
            if job is None:
                raise BulkError("There is no such job: make a dry run first.")
            if job.state != "planned":
                raise BulkError(f"This job is {job.state} already.")
            if time.monotonic() - job.planned_at > _PLAN_SECONDS:
                raise BulkError("The dry run is too old: make another.")
            if count != job.count:
                raise BulkError(f"The dry run found {job.count}, not {count}: confirm that number.")
            job = replace(job, state="running")
            self._jobs[token] = job
        self._writes.audit(
            author, f"bulk-{job.verb}", count=count, job=token, **job.filters.as_dict()
        )
        thread = threading.Thread(target=self._run, args=(job,), name="bulk", daemon=True)
        self._threads.append(thread)
        thread.start()
        return job

    def get(self, token: str) -> Job | None:
        """A job as it stands."""
        return self._jobs.get(token)

    def all(self) -> list[Job]:
        """Newest first."""
        return sorted(self._jobs.values(), key=lambda job: -job.planned_at)

    def stop_job(self, token: str, author: Author) -> Job:
        """Send no more; what was sent stays sent."""
        with self._lock:
            job = self._jobs.get(token)
            if job is None:
                raise BulkError("There is no such job.")
            if job.state in ("planned", "running"):
                job = self._jobs[token] = replace(job, state="stopped")
        self._writes.audit(author, "bulk-stop", job=token, sent=job.sent)
        return job

    def stop(self) -> None:
        """End what runs."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _select(self, token: str, verb: Verb, filters: Filters) -> tuple[int, int]:
        count = skipped = 0
        with self._selection(token) as database:
            database.execute(
                "CREATE TABLE chosen (partition INTEGER, position INTEGER, due INTEGER,"
                " action_key TEXT, PRIMARY KEY (partition, position)) WITHOUT ROWID"
            )
            database.execute("BEGIN")
            deadline = time.monotonic() + _SELECT_SECONDS
            after = None
            while page := self._queries.rows(filters, Order(), limit=_CHUNK, after=after):
                fit = [row for row in page if is_meant(row, verb, filters)]
                skipped += len(page) - len(fit)
                count += len(fit)
                database.executemany(
                    "INSERT OR IGNORE INTO chosen VALUES (?, ?, ?, ?)",
                    [(row.partition, row.offset, row.due, row.action_key) for row in fit],
                )
                after = place_of(page[-1], filters, Order())
                if time.monotonic() > deadline:
                    raise BulkError("Too many match: narrow the search.")
            database.execute("COMMIT")
        return count, skipped

    def _run(self, job: Job) -> None:
        with self._turn:
            try:
                for partition, chosen in self._chosen(job.token):
                    if not self._deal_with(job.token, partition, chosen):
                        return
                self._update(job.token, state="done")
            except (PunctualError, RecordGoneError, sqlite3.Error) as error:
                self._update(job.token, state="failed", error=str(error))
            finally:
                self._path(job.token).unlink(missing_ok=True)

    def _chosen(self, token: str) -> Iterator[tuple[int, list[tuple[int, int, str]]]]:
        """Chunks of one partition each, in the order of the log: offset, due, action key."""
        with self._selection(token) as database:
            found = database.execute(
                "SELECT partition, position, due, action_key FROM chosen"
                " ORDER BY partition, position"
            )
            for partition, rows in itertools.groupby(found, key=lambda row: int(row[0])):
                while chunk := [tuple(row[1:]) for row in itertools.islice(rows, _CHUNK)]:
                    yield partition, chunk

    def _deal_with(self, token: str, partition: int, chosen: list[tuple[int, int, str]]) -> bool:
        """Send requests for a chunk; false when the job is to go no further."""
        job = self._jobs[token]
        if job.state != "running" or self._stopping.is_set():
            return False
        offsets = [offset for offset, due, key in chosen if self._queries.get(due, key) is not None]
        batch = [
            self._request(job, log_records.request_of(record))
            for record in self._records.read_many(self._topic, partition, offsets)
        ]
        self._writes.client.send_all(batch)
        self._update(token, sent=job.sent + len(batch), gone=job.gone + len(chosen) - len(batch))
        return True

    def _request(self, job: Job, standing: log_records.Request) -> Request:
        if job.verb != "reschedule":
            make = {"cancel": requests.cancelled, "pause": requests.paused}
            return make.get(job.verb, requests.resumed)(standing)
        due = standing.plan.wanted_ms + (job.shift_ms or 0)
        due = job.deliver_at_ms if job.deliver_at_ms is not None else due
        return requests.moved(standing, deliver_at_ms=max(due, 0))

    def _update(
        self,
        token: str,
        *,
        state: State | None = None,
        sent: int | None = None,
        gone: int | None = None,
        error: str = "",
    ) -> None:
        with self._lock:
            job = self._jobs[token]
            self._jobs[token] = replace(
                job,
                state=state or job.state,
                sent=job.sent if sent is None else sent,
                gone=job.gone if gone is None else gone,
                error=error or job.error,
            )

    def _forget_old(self) -> None:
        idle = [job for job in self._jobs.values() if job.state != "running"]
        for job in sorted(idle, key=lambda job: job.planned_at)[:-_PLANS_KEPT]:
            del self._jobs[job.token]
            self._path(job.token).unlink(missing_ok=True)

    def _path(self, token: str) -> Path:
        return self._directory / f"job-{token}.db"

    @contextlib.contextmanager
    def _selection(self, token: str) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path(token), isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            yield database
        finally:
            database.close()


def is_meant(row: PendingRow, verb: Verb, filters: Filters) -> bool:
    """Whether it can be dealt with, and should be.

    A single time would end what recurs. A new time ends a pause: that is done only to those who
    were asked for as paused.
    """
    if row.id is None:
        return False
    if verb == "reschedule":
        return not row.cron and (not row.paused or bool(filters.paused))
    if verb in ("pause", "resume"):
        return row.paused is (verb == "resume")
    return True
