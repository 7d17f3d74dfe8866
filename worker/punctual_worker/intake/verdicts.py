"""Accept or refuse: the plan of a good request, the codes and sentences of a bad one. Pure."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import NULL_VALUE, PLAN_FIELDS, PLAN_VERSION, Verb
from punctual_worker.intake.faults import (
    describe,
    is_allowed,
    is_timed,
    is_too_far,
    possible_faults,
)
from punctual_worker.intake.rarely import rarely
from punctual_worker.intake.requests import there
from punctual_worker.intake.rules import Rules


def with_verdict(requests: DataFrame, rules: Rules, *, source: str = "") -> DataFrame:
    """Adds `accepted`, and either `plan` or `codes` and `sentences`.

    `source`: their topic, where it is not the app's own.
    """
    judged = requests.withColumn("accepted", _is_faultless(rules))
    codes, sentences = describe(possible_faults(rules))
    refused = ~sf.col("accepted")
    return judged.withColumns(
        {
            "plan": sf.when(sf.col("accepted"), plan_text(source=source)),
            "codes": sf.when(refused, rarely(codes)),
            "sentences": sf.when(refused, rarely(sentences)),
        }
    )


def _is_faultless(rules: Rules) -> Column:
    """The same judgement as `possible_faults`, in the few steps that a good request needs."""
    id_is_good = sf.col("request_id").isNotNull() | ~(
        there(names.REQUEST_ID) | (sf.col("verb") != Verb.ADD.value)
    )
    optional = {
        names.DELIVER_PARTITION: "to_partition",
        names.EXPIRES_AT: "expires_ms",
        names.SPREAD: "spread_ms",
        names.MISFIRE: "misfire",
        names.TIMEZONE: "timezone",
    }
    delivery_is_good = is_allowed(rules) & sf.col("due_ms").isNotNull() & ~is_too_far(rules)
    for name, parsed in optional.items():
        delivery_is_good = delivery_is_good & (~there(name) | sf.col(parsed).isNotNull())
    recurring_only = there(names.MISFIRE) | there(names.TIMEZONE)
    delivery_is_good = delivery_is_good & (there(names.CRON) | ~recurring_only)
    faultless = (
        sf.col("verb").isNotNull()
        & ~sf.col("has_unknown")
        & sf.col("fits")
        & id_is_good
        & (~is_timed() | delivery_is_good)
    )
    return sf.coalesce(faultless, sf.lit(False))


def plan_text(*, source: str = "", value: str = "value", flags: Column | None = None) -> Column:
    """As `contract.actions.encode_plan` would write it, with `flags` beside that of a null value.

    `value`: the column with what is to be delivered.
    """
    timed = is_timed()

    def when_timed(column: str) -> Column:
        return sf.when(timed, sf.col(column)).cast("string")

    null_value = sf.when(sf.col(value).isNull(), sf.lit(NULL_VALUE)).otherwise(sf.lit(""))
    fields = {
        "version": sf.lit(PLAN_VERSION),
        "verb": sf.col("verb"),
        "due_ms": sf.when(timed, sf.col("due_ms")).otherwise(sf.lit(0)).cast("string"),
        "destination": when_timed("destination"),
        "partition": when_timed("to_partition"),
        "expires_ms": when_timed("expires_ms"),
        "flags": null_value if flags is None else sf.concat(null_value, flags),
        "source": sf.lit(source),
        "misfire": when_timed("misfire"),
        "cron": when_timed("cron"),
        "timezone": when_timed("timezone"),
        "request_id": sf.col("request_id"),
    }
    # `concat_ws` leaves nulls out, and the field's place with them.
    return sf.concat_ws(
        "|", *(sf.coalesce(fields.get(f, sf.lit("")), sf.lit("")) for f in PLAN_FIELDS)
    )
