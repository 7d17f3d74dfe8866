"""What each topic says about each request: Kafka records in, a row per fact out. Pure.

Every fact names the request by its coordinates (source tag, partition, offset), however the topic
at hand writes them: as action key, as `x-scheduler-source`, or as where the record itself stands.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import BARE, NATIVE_SOURCE, PLAN_FIELDS
from punctual_worker.dispatch.restoring import TOMBSTONE_DUE

COORDINATES: Final = ("tag", "partition", "offset")
CANCEL_APPLIED: Final = "CancelApplied"
"""Not an event of its own: history tells it of the schedule that was cancelled."""
_BY_CANCEL: Final = "by CANCEL "
_ACTION_KEY: Final = r"\A[0-9a-f]{1,8}/[0-9]{1,10}/[0-9]{1,19}(?:#[0-9]{1,9})?\z"


def request_facts(records: DataFrame) -> DataFrame:
    """Requests as their producers wrote them; only the headers that place them."""
    header = _headers()
    return records.select(
        sf.lit(NATIVE_SOURCE).alias("tag"),
        "partition",
        "offset",
        sf.lit(True).alias("requested"),
        sf.unix_millis("timestamp").alias("requested_ms"),
        sf.coalesce(sf.upper(_text(header, names.ACTION)), sf.lit("ADD")).alias("requested_verb"),
        _text(header, names.REQUEST_ID).alias("requested_id"),
        _text(header, names.DELIVER_TO).alias("requested_destination"),
        _text(header, names.CRON).alias("requested_cron"),
    )


def action_facts(records: DataFrame) -> DataFrame:
    """Actions, re-armed ones and tombstones among them; foreign records are left out."""
    key = sf.col("key").cast("string")
    parts = sf.split(key, "[/#]")
    header = _headers()
    plan = sf.split(_text(header, names.ACTION_PLAN), r"\|", len(PLAN_FIELDS))
    field = {name: sf.get(plan, sf.lit(index)) for index, name in enumerate(PLAN_FIELDS)}
    number = {name: field[name].try_cast("bigint") for name in ("due_ms", "scheduled_for_ms")}
    round_ = sf.coalesce(sf.get(parts, sf.lit(3)).try_cast("int"), sf.lit(0))
    is_record = sf.col("value").isNotNull() & field["version"].isNotNull()
    is_first = is_record & (round_ == 0)
    entry = sf.struct(round_.alias("round"), number["due_ms"].alias("due_ms"))
    return records.where(key.rlike(_ACTION_KEY)).select(
        sf.get(parts, sf.lit(0)).alias("tag"),
        sf.get(parts, sf.lit(1)).try_cast("int").alias("partition"),
        sf.get(parts, sf.lit(2)).try_cast("bigint").alias("offset"),
        sf.col("partition").alias("log_partition"),
        sf.when(is_first, sf.col("offset")).alias("log_offset"),
        sf.when(is_first, sf.unix_millis("timestamp")).alias("logged_ms"),
        sf.when(is_record, entry).alias("entry"),
        sf.when(sf.col("value").isNull(), round_).alias("tombstone"),
        sf.when(is_record, field["verb"]).alias("verb"),
        sf.when(is_record, field["destination"]).alias("destination"),
        sf.when(is_record, field["request_id"]).alias("id"),
        sf.when(is_record, field["cron"]).alias("cron"),
        sf.when(is_record, field["flags"].contains(BARE)).alias("bare"),
        sf.when(sf.col("value").isNull(), _text(header, TOMBSTONE_DUE).try_cast("bigint"))
        .otherwise(sf.coalesce(number["scheduled_for_ms"], number["due_ms"]))
        .alias("wanted_ms"),
        sf.when(is_first, _content(field, number["due_ms"])).alias("content"),
    )


def delivery_facts(records: DataFrame, *, requests_topic: str) -> DataFrame:
    """Records of destinations that say which request they come from."""
    header = _headers()
    wanted = sf.try_to_timestamp(_text(header, names.SCHEDULED_FOR))
    delivery = sf.struct(
        sf.col("topic"),
        sf.unix_millis("timestamp").alias("at_ms"),
        sf.unix_millis(wanted).alias("wanted_ms"),
        sf.concat_ws("/", "topic", "partition", "offset").alias("place"),
    )
    return _by_source(records, requests_topic, delivery.alias("delivery"))


def rejection_facts(records: DataFrame, *, requests_topic: str) -> DataFrame:
    """Rejections with their codes."""
    codes = _text(_headers(), names.ERROR_CODE)
    return _by_source(records, requests_topic, sf.coalesce(codes, sf.lit("")).alias("codes"))


def event_facts(records: DataFrame, *, requests_topic: str) -> DataFrame:
    """What history tells of each request, and of the CANCEL that it names as the cause."""
    told = sf.col("value").cast("string")
    reason = sf.get_json_object(told, "$.reason")
    own = sf.struct(
        sf.get_json_object(told, "$.source").alias("source"),
        sf.get_json_object(told, "$.event").alias("event"),
    )
    by_cancel = sf.when(
        reason.startswith(_BY_CANCEL),
        sf.struct(
            sf.substring(reason, len(_BY_CANCEL) + 1, 1_000).alias("source"),
            sf.lit(CANCEL_APPLIED).alias("event"),
        ),
    )
    each = records.select(
        sf.explode(sf.array_compact(sf.array(own, by_cancel))).alias("told"), "timestamp"
    )
    return _with_coordinates(
        each,
        sf.col("told.source"),
        requests_topic,
        sf.col("told.event").alias("event"),
        sf.unix_millis("timestamp").alias("told_ms"),
    )


def gather(facts: list[DataFrame]) -> DataFrame:
    """One row for each request, with all that is known of it."""
    together = facts[0]
    for more in facts[1:]:
        together = together.unionByName(more, allowMissingColumns=True)
    lists = {"delivery": "deliveries"}
    sets = {"entry": "entries", "tombstone": "tombstones", "codes": "codes", "event": "events"}
    firsts = ("log_offset", "logged_ms", "told_ms")
    rest = [name for name in together.columns if name not in {*COORDINATES, *lists, *sets, *firsts}]
    return together.groupBy(*COORDINATES).agg(
        *(sf.collect_list(name).alias(alias) for name, alias in lists.items()),
        *(sf.collect_set(name).alias(alias) for name, alias in sets.items()),
        *(sf.min(name).alias(name) for name in firsts),
        *(sf.max(name).alias(name) for name in rest),
    )


def _by_source(records: DataFrame, requests_topic: str, *columns: Column) -> DataFrame:
    return _with_coordinates(records, _text(_headers(), names.SOURCE), requests_topic, *columns)


def _with_coordinates(
    records: DataFrame, source: Column, requests_topic: str, *columns: Column
) -> DataFrame:
    parts = sf.split(source, "/")
    topic = sf.get(parts, sf.lit(0))
    foreign_tag = sf.lower(sf.lpad(sf.hex(sf.crc32(topic.cast("binary"))), 8, "0"))
    return records.select(
        sf.when(topic == requests_topic, sf.lit(NATIVE_SOURCE)).otherwise(foreign_tag).alias("tag"),
        sf.get(parts, sf.lit(1)).try_cast("int").alias("partition"),
        sf.get(parts, sf.lit(2)).try_cast("bigint").alias("offset"),
        *columns,
    ).where("tag is not null and partition is not null and offset is not null")


def _headers() -> Column:
    return sf.map_from_entries("headers")


def _text(header: Column, name: str) -> Column:
    return sf.try_element_at(header, sf.lit(name)).cast("string")


def _content(field: dict[str, Column], due: Column) -> Column:
    """Equal for requests that ask for the same, whatever their verb and id."""
    users = sf.filter("headers", lambda one: ~one["key"].startswith(names.PREFIX))
    user_key = sf.try_element_at(_headers(), sf.lit(names.ACTION_USER_KEY))
    same = ("destination", "partition", "expires_ms", "flags", "misfire", "cron", "timezone")
    moment = sf.when(field["cron"] == "", due)
    return sf.xxhash64(moment, *(field[name] for name in same), user_key, sf.col("value"), users)
