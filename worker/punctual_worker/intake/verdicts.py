"""Accept or refuse: the plan of a good request, the codes and sentences of a bad one. Pure."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import NULL_VALUE, PLAN_FIELDS, PLAN_VERSION, Verb
from punctual_worker.intake.faults import (
    describe,
    is_allowed,
    is_timed,
    is_too_far,
    possible_faults,
)
from punctual_worker.intake.requests import there
from punctual_worker.intake.rules import Rules


def with_verdict(requests: DataFrame, rules: Rules) -> DataFrame:
    """Adds `accepted`, and either `plan` or `codes` and `sentences`."""
    judged = requests.withColumn("accepted", _is_faultless(rules))
    codes, sentences = describe(possible_faults(rules))
    refused = ~F.col("accepted")
    return judged.withColumns(
        {
            "plan": F.when(F.col("accepted"), _plan()),
            "codes": F.when(refused, codes),
            "sentences": F.when(refused, sentences),
        }
    )


def _is_faultless(rules: Rules) -> Column:
    """The same judgement as `possible_faults`, in the few steps that a good request needs."""
    id_is_good = F.col("request_id").isNotNull() | ~(
        there(names.REQUEST_ID) | (F.col("verb") != Verb.ADD.value)
    )
    optional = {
        names.DELIVER_PARTITION: "to_partition",
        names.EXPIRES_AT: "expires_ms",
        names.SPREAD: "spread_ms",
        names.MISFIRE: "misfire",
        names.TIMEZONE: "timezone",
    }
    delivery_is_good = is_allowed(rules) & F.col("due_ms").isNotNull() & ~is_too_far(rules)
    for name, parsed in optional.items():
        delivery_is_good = delivery_is_good & (~there(name) | F.col(parsed).isNotNull())
    recurring_only = there(names.MISFIRE) | there(names.TIMEZONE)
    delivery_is_good = delivery_is_good & (there(names.CRON) | ~recurring_only)
    faultless = (
        F.col("verb").isNotNull()
        & F.col("unknown").isNull()
        & F.col("fits")
        & id_is_good
        & (~is_timed() | delivery_is_good)
    )
    return F.coalesce(faultless, F.lit(False))


def _plan() -> Column:
    """As `contract.actions.encode_plan` would write it."""
    timed = is_timed()

    def when_timed(column: str) -> Column:
        return F.when(timed, F.col(column)).cast("string")

    fields = {
        "version": F.lit(PLAN_VERSION),
        "verb": F.col("verb"),
        "due_ms": F.when(timed, F.col("due_ms")).otherwise(F.lit(0)).cast("string"),
        "destination": when_timed("destination"),
        "partition": when_timed("to_partition"),
        "expires_ms": when_timed("expires_ms"),
        "flags": F.when(F.col("value").isNull(), F.lit(NULL_VALUE)),
        "misfire": when_timed("misfire"),
        "cron": when_timed("cron"),
        "timezone": when_timed("timezone"),
        "request_id": F.col("request_id"),
    }
    # `concat_ws` leaves nulls out, and the field's place with them.
    return F.concat_ws("|", *(F.coalesce(fields.get(f, F.lit("")), F.lit("")) for f in PLAN_FIELDS))
