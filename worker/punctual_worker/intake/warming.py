"""Opens the sink's producer, so that the first request does not wait for it.

Beside the query's own start, in the task slot that is left over, a batch of nothing is written to
Kafka: that makes the producer which the query will share. Whatever fails here fails loudly in the
query.

The first request after a start still takes some hundred milliseconds more than the next: the JVM
loads and interprets what it has never run. About a third of that is the sink's way to its first
record, which could be gone with a record written in vain; the rest are the expressions. To judge a
sample request was tried: it makes the start slower by more than it saves.
"""

import logging
import threading
import time

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from punctual_worker.intake.rules import Rules
from punctual_worker.intake.stream import sink_options
from punctual_worker.settings import Settings

_log = logging.getLogger(__name__)


class WarmUp:
    """A thread that ends by itself; of use only in a JVM that is this process' own."""

    def __init__(self, spark: SparkSession, settings: Settings, rules: Rules) -> None:
        """Begins at once."""
        self._spark = spark
        self._settings = settings
        self._rules = rules
        self._thread = threading.Thread(target=self._run, name="warm-up", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to wait for."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            # A filter that lets nothing through and that Spark cannot see through.
            one = self._spark.range(0, 1, 1, 1).where(sf.rand() < 0)
            nothing = one.select(
                sf.lit(self._rules.actions_topic).alias("topic"), sf.lit(b"").alias("value")
            )
            options = sink_options(self._settings, self._rules)
            nothing.write.format("kafka").options(**options).mode("append").save()
        except (PySparkException, Py4JError, OSError) as error:
            _log.debug("not warmed up: %s", error)
        _log.debug("warmed up in %.1f s", time.monotonic() - began)
