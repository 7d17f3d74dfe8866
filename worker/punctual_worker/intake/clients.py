"""What the Kafka clients in Spark's JVM tell of themselves, where that is this process' own.

On a cluster they are in the executors: then there is nothing to be seen here.
"""

import logging
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from punctual_worker.intake.offsets import Partition
from punctual_worker.intake.sources import Source
from punctual_worker.settings import Settings

_LOOK_SECONDS: Final = 0.05
_log = logging.getLogger(__name__)


class SparkClients:
    """The consumers and producers of intake's queries."""

    def __init__(
        self, spark: SparkSession, settings: Settings, *, sources: Sequence[Source]
    ) -> None:
        """Nothing is asked yet."""
        # Names of beans have no dots.
        self._topics = {source.topic.replace(".", "_"): source.topic for source in sources}
        self._beans = _Beans(spark)
        self._consumers = (
            "kafka.consumer:type=consumer-fetch-manager-metrics,topic=*,partition=*,"
            f"client-id=consumer-{settings.app_id}-intake-spark*"
        )

    def consumer_ids(self) -> frozenset[str]:
        """Names of the consumers that are there."""
        return frozenset(
            bean.getKeyProperty("client-id") for bean in self._beans.find(self._consumers)
        )

    def lags(self, *, but: frozenset[str] = frozenset()) -> dict[Partition, float]:
        """How far behind consumers are that have asked the broker.

        `but`: names of consumers that do not count. A consumer may close between being found and
        being asked; then there is no answer, this time.
        """
        lags: dict[Partition, float] = {}
        try:
            for bean in self._beans.find(self._consumers):
                if bean.getKeyProperty("client-id") in but:
                    continue
                lag = float(self._beans.value(bean, "records-lag"))
                topic = self._topics.get(bean.getKeyProperty("topic").replace(".", "_"))
                if topic is not None and not math.isnan(lag):
                    one = Partition(topic, int(bean.getKeyProperty("partition")))
                    # A pooled consumer of an earlier batch may still be there, with its old number.
                    lags[one] = min(lag, lags.get(one, lag))
        except Py4JJavaError as error:
            _log.debug("no live lag: %s", error.java_exception)
            return {}
        return lags

    def wait_until_sent(self, *, patience: float) -> bool:
        """Until no producer holds a record of an earlier query: they outlive queries."""
        deadline = time.monotonic() + patience
        while not self._all_is_sent():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _all_is_sent(self) -> bool:
        try:
            return all(
                self._beans.value(bean, "buffer-total-bytes")
                == self._beans.value(bean, "buffer-available-bytes")
                for bean in self._beans.find("kafka.producer:type=producer-metrics,client-id=*")
            )
        except Py4JJavaError:  # one that is being made or closed does not tell everything
            return False


class _Beans:
    """The JVM's management beans. Its server's own class is not open to Py4J, its interface is."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._gateway, self._jvm = context._gateway, context._jvm  # noqa: SLF001 no other way
        self._server = self._jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        methods = self._jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
        self._methods = {method.getName(): method for method in methods}

    def find(self, pattern: str) -> list[Any]:
        return list(self._call("queryNames", self._jvm.javax.management.ObjectName(pattern), None))

    def value(self, bean: Any, attribute: str) -> Any:
        return self._call("getAttribute", bean, attribute)

    def _call(self, method: str, *arguments: Any) -> Any:
        array = self._gateway.new_array(self._jvm.java.lang.Object, len(arguments))
        for index, argument in enumerate(arguments):
            array[index] = argument
        return self._methods[method].invoke(self._server, array)
