"""Requests of a dialect that a later one has superseded before anybody took them in.

The log of another scheduler, read from its beginning, has schedules in it that were delivered or
replaced long ago, with the tombstone or the new schedule behind them. Taken in one by one they
would be overdue, and delivered at once, before their end is seen. So what is there when a query
starts is looked through first, and only the last good request of each key is taken in.

That is what compaction leaves of such a topic, too. A key is in one partition, always.
"""

import logging
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as sf

from punctual_worker.intake import dialects
from punctual_worker.intake.offset_sets import Offsets
from punctual_worker.intake.rules import Rules
from punctual_worker.intake.sources import Source
from punctual_worker.intake.stream import offsets_text, source_options
from punctual_worker.settings import Settings

_SHUFFLES: Final = 8
_log = logging.getLogger(__name__)


def superseded(
    spark: SparkSession,
    settings: Settings,
    rules: Rules,
    source: Source,
    *,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
) -> dict[int, Offsets]:
    """Offsets from `begins` on that need not be taken in, by partition."""
    if not any(ends[number] > at for number, at in begins.items()):
        return {}
    options = {
        **source_options(settings, source.topic),
        "startingOffsets": offsets_text(source.topic, begins),
        "endingOffsets": offsets_text(source.topic, ends),
    }
    records = spark.read.format("kafka").options(**options).load()
    good = dialects.judged(records, rules, source).where("accepted")
    key = Window.partitionBy("partition", "key")
    over = (
        good.select("partition", "offset", "key")
        .repartition(_SHUFFLES, "partition", "key")
        .withColumn("last", sf.max("offset").over(key))
        .where(sf.col("offset") < sf.col("last"))
        .select("partition", "offset")
    )
    found = {number: Offsets(at) for number, at in begins.items()}
    count = too_far = 0
    for number, offset in over.toLocalIterator():
        count += 1
        too_far += not found[number].add(offset)
    _log.info("%s: %d requests have been superseded by later ones", source.topic, count)
    if too_far:
        _log.error(
            "%s: %d of them are too far on to be remembered: if they are overdue, they are "
            "delivered before what supersedes them",
            *(source.topic, too_far),
        )
    return found
