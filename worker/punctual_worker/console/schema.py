"""The view's database on local disk: layout, and whether what is there can still be trusted.

It is a cache of a log prefix. Another layout, other topics, a copy so old that tombstones it has
missed may be gone from the log, or a damaged file: it is thrown away and read again.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from punctual_worker.contract.actions import NEVER_MS

LAYOUT: Final = "4"
HOUR_MS: Final = 3_600_000
OFFSET_BITS: Final = 44
"""Rows of the append-only logs are numbered partition << 44 | offset."""
_BUSY_SECONDS: Final = 10.0
_WAL_KEPT_BYTES: Final = 256_000_000
_log = logging.getLogger(__name__)

_PENDING_COLUMNS: Final = """
  due INTEGER NOT NULL, action_key TEXT NOT NULL, id TEXT, destination INTEGER,
  partition INTEGER, position INTEGER, size INTEGER, wanted INTEGER, attempt INTEGER,
  expires INTEGER, cron TEXT, timezone TEXT
"""
_TABLES: Final = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE positions (
  topic TEXT NOT NULL, partition INTEGER NOT NULL, position INTEGER NOT NULL,
  PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE destinations (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE arriving (number INTEGER PRIMARY KEY, {_PENDING_COLUMNS});
CREATE TABLE pending ({_PENDING_COLUMNS}, PRIMARY KEY (due, action_key)) WITHOUT ROWID;
CREATE TABLE tally (
  destination INTEGER NOT NULL, hour INTEGER NOT NULL, n INTEGER NOT NULL,
  PRIMARY KEY (destination, hour)
) WITHOUT ROWID;
CREATE TABLE rejections (
  number INTEGER PRIMARY KEY, at INTEGER NOT NULL, id TEXT, codes TEXT NOT NULL,
  reason TEXT NOT NULL, source TEXT NOT NULL, destination TEXT NOT NULL, size INTEGER
);
CREATE INDEX rejections_at ON rejections (at, number);
CREATE INDEX rejections_id ON rejections (id, at);
CREATE INDEX rejections_source ON rejections (source);
CREATE TABLE events (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL,
  content TEXT NOT NULL
);
CREATE INDEX events_id ON events (id, at);
"""
_ARRANGE: Final = (
    # with MAX, the other columns are those of the row that has it: the last word on each schedule
    "INSERT INTO pending SELECT due, action_key, id, destination, partition, position, size,"
    " wanted, attempt, expires, cron, timezone FROM"
    " (SELECT *, MAX(number) FROM arriving GROUP BY due, action_key) WHERE destination IS NOT NULL",
    f"INSERT INTO tally SELECT destination, due / {HOUR_MS}, COUNT(*) FROM pending"  # noqa: S608
    " GROUP BY 1, 2",
    f"""CREATE TRIGGER pending_came AFTER INSERT ON pending BEGIN
      INSERT INTO tally VALUES (new.destination, new.due / {HOUR_MS}, 1)
      ON CONFLICT DO UPDATE SET n = n + 1;
    END""",  # noqa: S608 a number of ours
    f"""CREATE TRIGGER pending_went AFTER DELETE ON pending BEGIN
      UPDATE tally SET n = n - 1
      WHERE destination = old.destination AND hour = old.due / {HOUR_MS};
    END""",  # noqa: S608
    "DROP TABLE arriving",
)
"""The first reading only appends, and is sorted once at its end: rows come in any order, and to put
ten million of them where they belong one by one would write each page a hundred times."""
_INDEXES: Final = (
    "CREATE INDEX IF NOT EXISTS pending_id ON pending (id, due, action_key, destination)"
    " WHERE id IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS pending_destination ON pending (destination, due, action_key)",
    "CREATE INDEX IF NOT EXISTS pending_recurring ON pending (due, action_key) WHERE cron <> ''",
    "CREATE INDEX IF NOT EXISTS pending_paused ON pending (wanted, action_key, destination)"
    f" WHERE due = {NEVER_MS}",
)
"""Each has due time and action key, the table's own key, so that places are found without looking
at the rows."""


def open_writer(path: Path, *, identity: Mapping[str, str], now_ms: int, max_age_ms: int) -> Path:
    """Make sure that the database at `path` is a usable copy of these topics; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        reason = _distrust(path, identity, now_ms=now_ms, max_age_ms=max_age_ms)
        if reason is None:
            return path
        _log.info("the view is read again from the log: %s", reason)
        discard(path)
    with contextlib.closing(connect(path)) as database:
        database.executescript(_TABLES)
        entries = {**identity, "layout": LAYOUT, "saved_at": str(now_ms)}
        database.executemany("INSERT INTO meta VALUES (?, ?)", entries.items())
    return path


def connect(path: Path, *, read_only: bool = False, cache_mb: int = 64) -> sqlite3.Connection:
    """A connection; its page cache is the only memory that grows with use."""
    database = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
    )
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("PRAGMA temp_store = FILE")
    database.execute("PRAGMA wal_autocheckpoint = 32768")
    database.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
    database.execute(f"PRAGMA cache_size = -{cache_mb * 1024}")
    if read_only:
        database.execute("PRAGMA query_only = ON")
    return database


def is_arriving(database: sqlite3.Connection) -> bool:
    """Whether the log's end has not been reached yet, since the file was made."""
    found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'arriving'").fetchone()
    return found is not None


def arrange(database: sqlite3.Connection) -> None:
    """After the first reading, in one transaction: sort what has arrived, and count it."""
    for statement in _ARRANGE:
        database.execute(statement)


def make_indexes(database: sqlite3.Connection) -> None:
    """What searches go by, where it is missing; it takes the room of what `arrange` has dropped.

    One by one, so that the write-ahead log holds no more than the largest of them.
    """
    for statement in _INDEXES:
        database.execute(statement)


def discard(path: Path) -> None:
    """Remove the database with its side files."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _distrust(
    path: Path, identity: Mapping[str, str], *, now_ms: int, max_age_ms: int
) -> str | None:
    """Why the file cannot be used; None if it can."""
    try:
        with contextlib.closing(connect(path)) as database:
            found = dict(database.execute("SELECT name, value FROM meta"))
    except sqlite3.DatabaseError as error:
        return f"the file cannot be read ({error})"
    if found.get("layout") != LAYOUT:
        return "it is of another version"
    if any(found.get(name) != value for name, value in identity.items()):
        return "the topics are not the ones it was made from"
    if now_ms - int(found.get("saved_at", "0")) > max_age_ms:
        return "it is too old: tombstones may be gone from the log"
    return None
