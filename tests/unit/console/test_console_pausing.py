"""What is paused: how it is told, chosen and waited for."""

import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from punctual_worker.client import Placed, Request
from punctual_worker.console import bulk, rows, schema, service
from punctual_worker.console.effects import Effects
from punctual_worker.console.filters import Filters
from punctual_worker.console.queries import Queries
from punctual_worker.console.reading import Reader
from punctual_worker.console.rows import PendingRow, Removal
from punctual_worker.console.view import Batch, View
from punctual_worker.console.writes import Author, Verb, Writes
from punctual_worker.contract import actions
from punctual_worker.contract.actions import NEVER_MS, Plan
from punctual_worker.dispatch.checkpoint import Checkpoint

HOUR = schema.HOUR_MS
STANDING = "0/0/1"


def row(
    *, key: str = STANDING, paused: bool = False, cron: str = "", due: int = HOUR
) -> PendingRow:
    at = NEVER_MS if paused else due
    return PendingRow(at, key, "id", "orders", 0, 1, 1, due, 0, None, cron, "")


def test_a_paused_one_tells_when_it_was_to_be_due() -> None:
    plan = Plan(actions.Verb.ADD, NEVER_MS, "t", "id", scheduled_for_ms=HOUR).pause()
    found = rows.read_action(0, 0, b"0/0/1#1", b"v", actions.action_headers([], None, plan))
    assert isinstance(found, PendingRow)
    assert (found.paused, found.told_due) == (True, HOUR)


def test_next_fires_of_a_paused_one_are_those_after_now() -> None:
    hourly = row(cron="0 * * * *", paused=True)
    assert service.next_fires(hourly, 2, 0) == [HOUR, 2 * HOUR]
    assert service.next_fires(hourly, 2, 5 * HOUR + 1) == [6 * HOUR, 7 * HOUR]


@pytest.mark.parametrize(
    ("verb", "filters", "meant"),
    [
        ("cancel", Filters(), {"once", "recurs", "paused"}),
        ("reschedule", Filters(), {"once"}),
        ("reschedule", Filters(paused=True), {"once", "paused"}),
        ("pause", Filters(), {"once", "recurs"}),
        ("resume", Filters(), {"paused"}),
    ],
)
def test_bulk_leaves_alone_what_it_would_harm(
    verb: bulk.Verb, filters: Filters, meant: set[str]
) -> None:
    given = {
        "once": row(),
        "recurs": row(cron="* * * * *"),
        "paused": row(paused=True),
        "no id": row()._replace(id=None),
    }
    assert {name for name, each in given.items() if bulk.is_meant(each, verb, filters)} == meant


class Log:
    """A view with one schedule, and what intake and dispatcher would make of a request."""

    def __init__(self, path: Path, standing: PendingRow) -> None:
        schema.open_writer(path, identity={}, now_ms=0, max_age_ms=1)
        self.view, self.effects = View(path), Effects()
        self.view.make_searchable()
        self.standing = standing
        self.latest: dict[int, Checkpoint] = {}
        self.queries = Queries(Reader(path))
        self.change(put=standing)
        self.writes = Writes(self, self.effects, self, self.queries, CollectorRegistry())  # type: ignore[arg-type]

    def change(self, put: PendingRow | None = None, remove: PendingRow | None = None) -> None:
        batch = Batch()
        if remove is not None:
            batch.remove(Removal(remove.due, remove.action_key))
        if put is not None:
            batch.put(put)
        self.view.apply(batch, now_ms=0)

    def send(self, request: Request) -> Placed:
        """As the client: the request stands at 0/9."""
        return Placed("requests", 0, 9)

    def decide(self, *rearmed: PendingRow, gone: bool = False) -> None:
        """A turn of the dispatcher, as the follower reads it."""
        self.effects.taken("0/0/9", 0, 5, None)
        if rearmed or gone:
            self.change(put=rearmed[-1] if rearmed and not gone else None, remove=self.standing)
        for each in rearmed:
            self.effects.taken(each.action_key, 0, 6, each)
        self.latest = {0: Checkpoint(position=6)}
        self.effects.tell()

    def ask(self, verb: Verb, *rearmed: PendingRow, gone: bool = False) -> str:
        later = threading.Timer(0.1, self.decide, rearmed, {"gone": gone})
        later.start()
        effect = self.writes.send(
            Request(b"k", None, []),
            verb=verb,
            author=Author("me", ""),
            request_id="id",
            wait_seconds=30,
            before=self.standing,
        )
        later.join()
        self.view.close()
        return effect.outcome


def test_the_answer_tells_that_it_is_paused(tmp_path: Path) -> None:
    log = Log(tmp_path / "view.db", row())
    assert log.ask("pause", row(key=f"{STANDING}#1", paused=True)) == "paused"


def test_the_answer_tells_that_it_goes_on_also_when_it_was_delivered_at_once(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path / "view.db", row(key=f"{STANDING}#1", paused=True))
    assert log.ask("resume", row(key=f"{STANDING}#2"), gone=True) == "resumed"


def test_the_answer_tells_that_nothing_changed(tmp_path: Path) -> None:
    log = Log(tmp_path / "view.db", row(key=f"{STANDING}#1", paused=True))
    assert log.ask("pause") == "unchanged"


def test_the_answer_tells_that_it_came_too_late(tmp_path: Path) -> None:
    log = Log(tmp_path / "view.db", row())
    assert log.ask("pause", gone=True) == "missed"
