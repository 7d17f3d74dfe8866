"""The local store: one RocksDB per partition. A cache of a log prefix, never more.

Memory does not grow with what is pending: block cache and write buffers are shared by all
partitions of the process and bounded. The write-ahead log is off: after a crash RocksDB comes back
with some earlier state, and the position, written with every batch, says which one.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import ormsgpack
from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from punctual_worker.dispatch.deliveries import REQUEST_ID, entry_of, pack, unpack
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.policy import Policy
from punctual_worker.dispatch.table import Changes, Stretch

_ROW: Final = b"d"
_ROWS_END: Final = b"e"
_ID: Final = b"i"
_META: Final = b"m"
_MARK: Final = b""
_FORMAT: Final = 4
"""Of the rows; a store that was written by another version is built anew."""
_PIECES: Final = (16, 64)
"""Rows read before anybody looks at their size: few at first, more where the last were small. Not
many more: large ones may follow, and all of a piece is in memory."""
_SMALL_ROW_BYTES: Final = 4 * 1024
_BLOCK_CACHE_BYTES: Final = 48 * 1024 * 1024
_WRITE_BUFFERS_BYTES: Final = 64 * 1024 * 1024
_WRITE_BUFFER_BYTES: Final = 16 * 1024 * 1024
_BLOCK_BYTES: Final = 16 * 1024

_log = logging.getLogger(__name__)


class StoreMemory:
    """Caches that all stores of a process share, so that their number does not matter."""

    def __init__(self) -> None:
        self.blocks = Cache(_BLOCK_CACHE_BYTES)
        self.buffers = WriteBufferManager(_WRITE_BUFFERS_BYTES, False)


class Store:
    """A `Table` on disk."""

    def __init__(
        self, path: Path, *, memory: StoreMemory, policy: Policy, topic_id: str, max_age_ms: int
    ) -> None:
        """Open what is there if it is of this topic, holds messages as the policy wants them, and
        was in step with the log less than `max_age_ms` ago; else empty.

        Older than the tombstones' retention it could hold rows whose removal the log no longer
        shows.
        """
        self._path = path
        self._memory = memory
        self._render = policy.render
        self._kind = [_FORMAT, topic_id, policy.requests_topic, policy.trace]
        self._no_wal = WriteOptions()
        self._no_wal.disable_wal = True  # type: ignore[method-assign, assignment] # stub is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = self._open()
        self._sweep_from = b""
        self.position = 0
        self.rows = 0
        self._in_step_ms = now_ms()
        self._load(max_age_ms, now_ms())

    # the Table protocol

    def find(self, request_id: str) -> Sequence[bytes]:
        """Order keys of the rows with this request id, fired ones among them."""
        packed = self._db.get(_ID + request_id.encode())
        return [] if packed is None else list(ormsgpack.unpackb(packed))

    def get(self, order: bytes) -> Entry | None:
        """One entry; None if there is none, or only a mark."""
        row = self._db.get(_ROW + order)
        return entry_of(unpack([row])[0]) if row else None

    def read(self, *, start: bytes, until: bytes, most: int, most_bytes: int) -> Stretch:
        """Rows with `start` <= order key < `until`, in order: up to about so many."""
        orders: list[bytes] = []
        rows: list[bytes] = []
        size = 0
        end = until
        for piece in self._pieces(start, until, most):
            orders += [key[1:] for key, _ in piece]
            found = [row for _, row in piece]
            rows += found
            size += sum(map(len, found))
            if len(orders) >= most or size >= most_bytes:
                end = orders[-1] + b"\0"
                break
        if _MARK in rows:
            orders = [order for order, row in zip(orders, rows, strict=True) if row]
            rows = [row for row in rows if row]
        return Stretch(orders, rows, end)

    def first_after(self, order: bytes) -> bytes | None:
        """The smallest order key beyond this one."""
        for found, _ in self._rows_from(order + b"\0" if order else b""):
            return found
        return None

    def fired(self, *, until: bytes, limit: int) -> list[tuple[bytes, str]]:
        """Order key and request id of the first rows up to and including `until`."""
        found: list[tuple[bytes, str]] = []
        for piece in self._pieces(self._sweep_from, until + b"\0", limit):
            messages = iter(unpack([row for _, row in piece if row]))
            found += [(key[1:], next(messages)[REQUEST_ID] if row else "") for key, row in piece]
            if len(found) >= limit:
                break
        return found[:limit]

    def write(self, changes: Changes, *, position: int) -> None:
        """Apply the changes and move to the position, all or nothing."""
        batch = WriteBatch(raw_mode=True)
        ids: dict[str, list[bytes]] = {}
        for order, request_id in changes.removes.items():
            if self._db.get(_ROW + order) is not None:
                self.rows -= 1
                batch.delete(_ROW + order)
            if request_id:
                orders = ids.setdefault(request_id, list(self.find(request_id)))
                if order in orders:
                    orders.remove(order)
        for order, entry in changes.puts.items():
            key = _ROW + order
            perhaps_there = changes.perhaps_there or order in changes.again
            if not perhaps_there or self._db.get(key) is None:
                self.rows += 1
            batch.put(key, pack(self._render(entry)) if entry is not None else _MARK)
            if order < self._sweep_from:
                self._sweep_from = order
            if entry is not None and (request_id := entry.plan.request_id):
                orders = ids.setdefault(request_id, list(self.find(request_id)))
                if order not in orders:
                    orders.append(order)
        for request_id, orders in ids.items():
            if orders:
                batch.put(_ID + request_id.encode(), ormsgpack.packb(orders))
            else:
                batch.delete(_ID + request_id.encode())
        self.position = position
        batch.put(_META, self._meta())
        self._db.write(batch, self._no_wal)

    def clear(self) -> None:
        """Forget everything: position 0, no rows."""
        self._db.close()
        Rdict.destroy(str(self._path))
        self._db = self._open()
        self._sweep_from = b""
        self.position = 0
        self.rows = 0
        self._in_step_ms = now_ms()

    # beyond it

    def count_up_to(self, order: bytes) -> int:
        """How many rows have fired and wait to be swept."""
        count = 0
        for found, _ in self._rows_from(b""):
            if found > order:
                break
            count += 1
        return count

    def count_between(self, *, after: bytes, until: bytes, limit: int) -> int:
        """How many rows lie between two order keys; stops counting at `limit`."""
        count = 0
        for found, _ in self._rows_from(after + b"\0" if after else b""):
            if found >= until or count >= limit:
                break
            count += 1
        return count

    def swept_up_to(self, order: bytes) -> None:
        """The rows up to here are being swept: it need not step over what it deleted. A row that
        is put before here later is found all the same."""
        self._sweep_from = order

    def sweep_again_from(self, order: bytes) -> None:
        """They could not be swept."""
        self._sweep_from = min(self._sweep_from, order)

    def in_step(self, as_of_ms: int) -> None:
        """The rows reflect the whole log as of this moment: known to be so when a take-over is
        complete, and when a turn was committed; the moment is when that began. Not at any other
        time: a process that slept through its partition's loss would call an old store fresh.
        """
        self._in_step_ms = as_of_ms
        self._db.put(_META, self._meta(), self._no_wal)

    def close(self) -> None:
        """Keep what is in memory for the next start."""
        self._db.flush()
        self._db.close()

    def _pieces(self, start: bytes, until: bytes, most: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Stored rows with `start` <= order key < `until`, with their keys, a few at a time: that
        takes half the time of one by one. About `most` of them are wanted."""
        bounded = ReadOptions()
        bounded.set_iterate_upper_bound(_ROW + until)
        stored: Iterator[Any] = self._db.items(from_key=_ROW + start, read_opt=bounded)
        rows, larger = _PIECES
        while piece := list(islice(stored, rows)):
            yield piece
            if max(len(row) for _, row in piece) <= _SMALL_ROW_BYTES:
                rows = min(2 * rows, larger, max(most, rows))

    def _rows_from(self, order: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows: Iterator[tuple[Any, Any]] = self._db.items(from_key=_ROW + order)
        for key, value in rows:
            if key >= _ROWS_END:
                return
            yield key[1:], value

    def _open(self) -> Rdict:
        try:
            return Rdict(str(self._path), self._options(), access_type=AccessType.read_write())
        except Exception as error:  # rocksdict raises plain Exception
            if "lock" in str(error).lower():
                raise
            _log.warning("local store %s is damaged and built anew: %s", self._path, error)
            Rdict.destroy(str(self._path))
            return Rdict(str(self._path), self._options(), access_type=AccessType.read_write())

    def _options(self) -> Options:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_write_buffer_manager(self._memory.buffers)
        options.set_max_background_jobs(2)
        options.set_max_open_files(256)
        options.set_keep_log_file_num(2)
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._memory.blocks)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_bloom_filter(10, False)
        # With ten million rows filters and indexes are larger than the cache: read in parts, a
        # look-up costs a few kilobytes; read whole, it cost megabytes (2 TB in one take-over).
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_pin_top_level_index_and_filter(True)
        blocks.set_block_size(_BLOCK_BYTES)
        blocks.set_format_version(5)
        options.set_block_based_table_factory(blocks)
        return options

    def _load(self, max_age_ms: int, now: int) -> None:
        packed = self._db.get(_META)
        if packed is None:
            return
        meta = ormsgpack.unpackb(packed)
        if meta.get("kind") != self._kind or not 0 <= now - meta["in_step_ms"] <= max_age_ms:
            _log.info("local store %s is of another kind or too old: built anew", self._path)
            self.clear()
            return
        self.position, self.rows = meta["position"], meta["rows"]
        self._in_step_ms = meta["in_step_ms"]

    def _meta(self) -> bytes:
        return ormsgpack.packb(
            {
                "kind": self._kind,
                "position": self.position,
                "rows": self.rows,
                "in_step_ms": self._in_step_ms,
            }
        )


def now_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000
