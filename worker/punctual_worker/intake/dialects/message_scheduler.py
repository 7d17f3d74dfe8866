"""etf1's kafka-message-scheduler: headers say when and where to; a null value cancels. Pure.

The first of a repeated header counts, as it does there. Delivered with the headers of the request,
then where it came from, as there.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from punctual_worker.contract.actions import Verb
from punctual_worker.intake.dialects.judging import Words, header, no_headers, seconds_ms

_EPOCH: Final = "scheduler-epoch"
_TARGET_TOPIC: Final = "scheduler-target-topic"
_TARGET_KEY: Final = "scheduler-target-key"
_TIMESTAMP: Final = "scheduler-timestamp"
_KEY: Final = "scheduler-key"
_TOPIC: Final = "scheduler-topic"

WORDS: Final = Words(
    to=_TARGET_TOPIC,
    time=_EPOCH,
    time_wanted="seconds since 1970, such as 1893456000",
    partition="",
    readable="",
)


def read(records: DataFrame) -> DataFrame:
    """The columns that `judging` asks for."""
    cancels = sf.col("value").isNull()
    return (
        records.withColumn("map", sf.map_from_entries(sf.reverse("kept")))
        .withColumns(
            {
                "verb": sf.when(cancels, sf.lit(Verb.CANCEL.value)).otherwise(
                    sf.lit(Verb.REPLACE.value)
                ),
                "to_text": _given(_TARGET_TOPIC).cast("string"),
                "time_text": _given(_EPOCH).cast("string"),
                "partition_text": sf.lit(None).cast("string"),
                "is_placed": sf.lit(False),
                "out_key": sf.when(~cancels, _given(_TARGET_KEY)),
                "out_value": sf.col("value"),
                "out_headers": sf.concat(sf.coalesce("kept", no_headers()), _origin()),
            }
        )
        .withColumn("at_ms", seconds_ms(sf.col("time_text")))
    )


def _given(name: str) -> Column:
    return sf.try_element_at(sf.col("map"), sf.lit(name))


def _origin() -> Column:
    seconds = sf.floor(sf.col("ts_ms") / 1000).cast("string")
    return sf.array(
        header(_TIMESTAMP, seconds.cast("binary")),
        header(_KEY, sf.col("key")),
        header(_TOPIC, sf.col("topic").cast("binary")),
    )
