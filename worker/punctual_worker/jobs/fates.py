"""What became of each request, from all that is known of it: a class, and what is wrong. Pure.

The order of the rules is the order of certainty: a delivered record proves more than history,
history more than the place of cursor and tombstones, and those more than what later requests of the
same id make likely. Only where none of them explains a request is it lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from punctual_worker.contract.actions import NATIVE_SOURCE, Verb
from punctual_worker.jobs.evidence import CANCEL_APPLIED


class Fate(StrEnum):
    """What became of a request."""

    DELIVERED = "delivered once"
    DELIVERED_GONE = "delivered, no longer in its destination"
    UNTRACED = "fired, delivery not traced"
    RECURRING = "recurring"
    PENDING = "pending"
    IN_FLIGHT = "in flight"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    CANCEL_APPLIED = "cancel applied"
    CANCEL_MISSED = "cancel missed"
    PAUSE_APPLIED = "pause or resume applied"
    PAUSE_MISSED = "pause or resume missed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    UNPROVABLE = "cannot be told"
    TWICE = "delivered more than once"
    LOST = "lost"


class Problem(StrEnum):
    """What must never be."""

    LOST = "lost"
    TWICE = "delivered more than once"
    EARLY = "delivered early"
    AND_REJECTED = "delivered and rejected"
    AND_WITHDRAWN = "delivered although cancelled or replaced"


@dataclass(frozen=True)
class Knowledge:
    """What the rules have to know beyond the facts."""

    request_ends: Mapping[int, int]
    taken_in: Mapping[int, int]
    """Request partition -> offset before which intake has done everything."""
    seen: Mapping[tuple[int, int], int]
    """Actions partition and request partition -> highest request offset the dispatcher knows."""
    positions: Mapping[int, int]
    """Actions partition -> offset before which the dispatcher has decided everything."""
    cursors: Mapping[int, tuple[int, str]]
    """Actions partition -> due time and action key up to which everything has fired."""
    action_partitions: int
    actions_complete_since_ms: int
    """Nothing written since then can have been compacted away."""
    history_since_ms: int | None
    forgetful_destinations: Sequence[str]
    """Destinations that are gone, or do not keep all that was delivered to them."""
    traced: bool


def judge(gathered: DataFrame, known: Knowledge) -> DataFrame:
    """Adds `fate`, `problems` and `reason` to each request of the time before the job began."""
    ends = _lookup(known.request_ends, sf.col("partition"))
    # A destination may be shared: a delivery alone, of another topic's request, is not of this app.
    known_here = sum(sf.size(name) for name in ("entries", "tombstones", "codes", "events"))
    native = sf.col("tag") == NATIVE_SOURCE
    ours = gathered.where((native & (sf.col("offset") < ends)) | (~native & (known_here > 0)))
    return _with_fate(_with_neighbours(_with_places(_with_plan(ours), known)), known)


def _with_plan(rows: DataFrame) -> DataFrame:
    """From the action, else from the request itself."""
    spelled = [part for verb in Verb for part in (sf.lit(verb.name), sf.lit(verb.value))]
    verb = sf.coalesce("verb", sf.create_map(*spelled)[sf.col("requested_verb")])
    destination = sf.coalesce(sf.nullif("destination", sf.lit("")), "requested_destination")
    # The log forgets a recurring schedule that is over, and its fires still name the request.
    cron = sf.coalesce(sf.nullif("cron", sf.lit("")), "requested_cron")
    return rows.withColumns(
        {
            "verb": verb,
            "destination": destination,
            "id": sf.coalesce(sf.nullif("id", sf.lit("")), "requested_id"),
            "recurring": cron.isNotNull(),
            "action_key": sf.concat_ws("/", "tag", "partition", "offset"),
            "delivered": sf.filter(
                "deliveries", lambda one: destination.isNull() | (one["topic"] == destination)
            ),
        }
    )


def _with_places(rows: DataFrame, known: Knowledge) -> DataFrame:
    """Where the request stands with intake and dispatcher."""
    key = sf.col("action_key")
    hashed = sf.crc32(sf.coalesce("id", "action_key").cast("binary"))
    # Where the action is, or would be if intake had made one.
    home = sf.coalesce("log_partition", (hashed % known.action_partitions).cast("int"))
    position = sf.coalesce(_lookup(known.positions, sf.col("home")), sf.lit(0))
    seen = _lookup({f"{a}/{r}": o for (a, r), o in known.seen.items()}, sf.col("route"))
    done = _lookup(known.taken_in, sf.col("partition"))
    has_action = sf.col("log_offset").isNotNull() | (sf.size("tombstones") > 0)
    rows = rows.withColumns({"home": home, "has_action": has_action}).withColumn(
        "route", sf.concat_ws("/", "home", "partition")
    )
    cursor_due = sf.coalesce(
        _lookup({n: due for n, (due, _) in known.cursors.items()}, sf.col("home")), sf.lit(-1)
    )
    cursor_key = sf.coalesce(
        _lookup({n: at for n, (_, at) in known.cursors.items()}, sf.col("home")), sf.lit("")
    )
    rows = rows.withColumns({"cursor_due": cursor_due, "cursor_key": cursor_key})

    def stands(entry: Column) -> Column:
        due = sf.greatest(entry["due_ms"], sf.lit(0))
        full_key = sf.when(entry["round"] == 0, key).otherwise(
            sf.concat_ws("#", key, entry["round"])
        )
        beyond = (due > sf.col("cursor_due")) | (
            (due == sf.col("cursor_due")) & (full_key > sf.col("cursor_key"))
        )
        return beyond & ~sf.array_contains("tombstones", entry["round"])

    return rows.withColumns(
        {
            "decided": sf.col("log_offset") < position,
            "on_its_way": ~has_action
            & sf.coalesce(sf.col("offset") > seen, sf.lit(True))
            & sf.coalesce(sf.col("offset") >= done, sf.lit(True)),
            "standing": sf.exists("entries", stands),
        }
    )


def _with_neighbours(rows: DataFrame) -> DataFrame:
    """The request that could have removed this one, and whether it repeats the one before.

    By the log's order, which is the order in which the dispatcher decides.
    """
    own = sf.when(sf.col("log_offset").isNotNull() & sf.col("id").isNotNull(), sf.col("id"))
    group = sf.coalesce(own, "action_key")
    ordered = Window.partitionBy("home", group).orderBy("log_offset")
    before = ordered.rowsBetween(Window.unboundedPreceding, -1)
    after = ordered.rowsBetween(1, Window.unboundedFollowing)
    stood = sf.when(
        (sf.size("codes") == 0) & ~_pauses(),
        sf.struct(sf.when(sf.col("verb") != Verb.CANCEL.value, sf.col("content")).alias("content")),
    )
    repeats = sf.coalesce(
        sf.last(stood, ignorenulls=True).over(before)["content"] == sf.col("content"), sf.lit(False)
    )
    removes = (sf.col("verb") == Verb.CANCEL.value) | (
        (sf.col("verb") == Verb.REPLACE.value) & ~sf.col("repeats")
    )
    remover = sf.when(removes, sf.struct("verb", "logged_ms", "action_key"))
    is_mine = sf.when(
        (sf.size("codes") == 0) & ~sf.col("repeats") & ~_pauses(),
        sf.struct(
            ((sf.size("delivered") == 0) & (sf.col("verb") != Verb.CANCEL.value)).alias("open")
        ),
    )
    return (
        rows.withColumn("repeats", repeats)
        .withColumn("remover", sf.first(remover, ignorenulls=True).over(after))
        .withColumn("removed_one", sf.last(is_mine, ignorenulls=True).over(before)["open"])
    )


def _with_fate(rows: DataFrame, known: Knowledge) -> DataFrame:
    count = sf.size("delivered")
    twice = sf.when(
        sf.col("recurring"),
        count > sf.size(sf.array_distinct(sf.transform("delivered", lambda d: d["wanted_ms"]))),
    ).otherwise(count > 1)
    rows = rows.withColumn("twice", twice)
    rows = rows.withColumn("fate", _fate(known))
    withdrawn = sf.arrays_overlap(
        "events", sf.array(sf.lit("Cancelled"), sf.lit("Replaced"), sf.lit("Unchanged"))
    )
    once = (count > 0) & ~sf.col("recurring")
    early = sf.exists("delivered", lambda one: one["at_ms"] < one["wanted_ms"])
    problems = {
        Problem.LOST: sf.col("fate") == Fate.LOST.value,
        Problem.TWICE: sf.col("twice"),
        Problem.EARLY: early,
        Problem.AND_REJECTED: once & (sf.size("codes") > 0),
        Problem.AND_WITHDRAWN: once & withdrawn,
    }
    listed = sf.array_compact(
        sf.array(*(sf.when(wrong, sf.lit(problem.value)) for problem, wrong in problems.items()))
    )
    return rows.withColumn("problems", listed)


def _fate(known: Knowledge) -> Column:
    count = sf.size("delivered")
    buried = sf.size("tombstones") > 0
    codes = sf.array_join("codes", ",")
    is_cancel = sf.col("verb") == Verb.CANCEL.value
    steers = is_cancel | _pauses()
    rules: list[tuple[Column, Fate]] = [
        (sf.col("twice"), Fate.TWICE),
        (sf.col("recurring") & ((count > 0) | sf.col("standing")), Fate.RECURRING),
        (count > 0, Fate.DELIVERED),
        (codes.contains("expired") | _told("Expired"), Fate.EXPIRED),
        ((sf.size("codes") > 0) | _told("Rejected"), Fate.REJECTED),
        (_told("CancelMissed"), Fate.CANCEL_MISSED),
        (_told("PauseMissed") | _told("ResumeMissed"), Fate.PAUSE_MISSED),
        (_told(CANCEL_APPLIED), Fate.CANCEL_APPLIED),
        (_told("Cancelled"), Fate.CANCELLED),
        (_told("Replaced"), Fate.REPLACED),
        (_told("Unchanged"), Fate.UNCHANGED),
        (_told("Delivered") & _untraced(known), Fate.UNTRACED),
        (_told("Delivered"), Fate.DELIVERED_GONE),
        (sf.col("on_its_way"), Fate.IN_FLIGHT),
        (~sf.col("has_action") & _forgotten(known, steers), Fate.UNPROVABLE),
        (~sf.col("has_action"), Fate.LOST),
        (~sf.col("decided") & ~buried, Fate.IN_FLIGHT),
        (steers & ~buried, Fate.LOST),
        (_pauses() & (_history_covers(known) | sf.col("removed_one")), Fate.PAUSE_APPLIED),
        (_pauses() & sf.col("log_offset").isNotNull(), Fate.PAUSE_MISSED),
        (_pauses(), Fate.UNPROVABLE),
        (is_cancel & _history_covers(known), Fate.CANCEL_APPLIED),
        (is_cancel & sf.col("removed_one"), Fate.CANCEL_APPLIED),
        (is_cancel & sf.col("log_offset").isNotNull(), Fate.CANCEL_MISSED),
        (is_cancel, Fate.UNPROVABLE),
        (sf.col("standing"), Fate.PENDING),
        *_derived(known),
        (sf.lit(True), Fate.LOST),
    ]
    (condition, fate), *others = rules
    chain = sf.when(condition, sf.lit(fate.value))
    for condition, fate in others:
        chain = chain.when(condition, sf.lit(fate.value))
    return chain


def _derived(known: Knowledge) -> list[tuple[Column, Fate]]:
    """What the requests around an unexplained one make of it."""
    in_time = sf.col("remover")["logged_ms"] <= sf.col("wanted_ms")
    by_cancel = sf.col("remover")["verb"] == Verb.CANCEL.value
    repeats = sf.col("repeats") & (sf.col("verb") != Verb.CANCEL.value)
    # It would have told: nothing may be derived against history's silence.
    silent = ~_history_covers(known)
    fired = ~sf.col("standing") & sf.col("decided")
    gone = sf.col("destination").isin(*known.forgetful_destinations)
    return [
        (silent & repeats & (sf.col("logged_ms") <= sf.col("wanted_ms")), Fate.UNCHANGED),
        (silent & in_time & by_cancel, Fate.CANCELLED),
        (silent & in_time & ~by_cancel, Fate.REPLACED),
        (silent & (repeats | sf.col("remover").isNotNull()), Fate.UNPROVABLE),
        (silent & gone, Fate.UNPROVABLE),
        (silent & _untraced(known) & fired, Fate.UNTRACED),
        (silent & sf.col("log_offset").isNull(), Fate.UNPROVABLE),
    ]


def _pauses() -> Column:
    """Whether it is a PAUSE or a RESUME: the schedule that it is about stays pending."""
    return sf.col("verb").isin(Verb.PAUSE.value, Verb.RESUME.value)


def _forgotten(known: Knowledge, steers: Column) -> Column:
    """Whether the log may once have had an action for it."""
    old = sf.col("requested_ms") < known.actions_complete_since_ms
    return sf.coalesce(old, sf.lit(True)) & (steers | ~_history_covers(known))


def _history_covers(known: Knowledge) -> Column:
    if known.history_since_ms is None:
        return sf.lit(False)
    since = sf.coalesce("requested_ms", "logged_ms")
    return sf.coalesce(since >= known.history_since_ms, sf.lit(False))


def _untraced(known: Knowledge) -> Column:
    """Whether what is delivered does not say which request it comes from: by setting, or because
    the request came in another system's dialect."""
    return sf.lit(not known.traced) | sf.coalesce("bare", sf.lit(False))


def _told(event: str) -> Column:
    return sf.array_contains("events", sf.lit(event))


def _lookup(values: Mapping[Any, int] | Mapping[Any, str], key: Column) -> Column:
    """A small mapping as an expression; null where it has no value."""
    if not values:
        return sf.lit(None).cast("bigint")
    pairs = [sf.lit(item) for pair in values.items() for item in pair]
    return sf.try_element_at(sf.create_map(*pairs), key)
