"""The Spark session of intake: the only place that knows Spark's setting names."""

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from punctual_worker.errors import PunctualError
from punctual_worker.settings import Settings

_SPARE_SLOTS: Final = 1
_REASON_CHARS: Final = 500
_PATIENCE_SECONDS: Final = 300.0
"""For executors, whose pods may wait for a node and an image."""
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
EXPRESSION_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.ansi.enabled": "true",
}
"""What the expressions rely on: no zone means UTC, the last of a repeated header counts."""

OWN_CLUSTER: Final = "k8s"
"""The master that stands for the cluster that this pod is in."""
_LOOPBACK: Final = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}


class SessionError(PunctualError):
    """Spark cannot be started as intake needs it."""


def intake_dir(settings: Settings) -> Path:
    """Where intake keeps its caches."""
    return settings.data_dir.absolute() / "intake" / settings.app_id


def spark_conf(settings: Settings, *, jars: list[Path], slots: int) -> dict[str, str]:
    """Spark's settings for intake; what the user gave wins, but for what correctness needs."""
    # For whoever judges requests: this process, or executors. Spark puts these before what the
    # user gives, so that theirs are added to ours and do not replace them.
    judging = " ".join(
        (
            # What a broken Avro record claims to hold is not to be made room for.
            f"-Dorg.apache.avro.limits.bytes.maxLength={settings.request_max_bytes}",
            f"-Dorg.apache.avro.limits.string.maxLength={settings.request_max_bytes}",
            "-Dorg.apache.avro.limits.collectionItems.maxLength=100000",
            # Belt and braces beside `rarely`: a method too large to compile would be interpreted.
            "-XX:-DontCompileHugeMethods",
        )
    )
    java_options = " ".join(
        (
            f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
            # On few cores the serial collector saves memory and threads. Nearly all dies young:
            # with half of the heap for that, there are a tenth more requests per second.
            "-XX:+UseSerialGC -XX:NewRatio=1" if (os.cpu_count() or 1) <= 2 else "-XX:+UseG1GC",
        )
    )
    return {
        "spark.app.name": f"{settings.app_id}-intake",
        "spark.master": settings.intake_master or f"local[{slots}]",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(intake_dir(settings) / "spark"),
        "spark.sql.warehouse.dir": str(intake_dir(settings) / "warehouse"),
        "spark.driver.memory": "768m",
        "spark.driver.defaultJavaOptions": judging,
        "spark.driver.extraJavaOptions": java_options,
        **(_LOOPBACK if is_local(settings) else {"spark.executor.defaultJavaOptions": judging}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.streaming.metricsEnabled": "false",
        # Not to be had in real-time mode, which warns of it at each start.
        "spark.sql.adaptive.enabled": "false",
        # A cache needs no history.
        "spark.sql.streaming.minBatchesToRetain": "10",
        **settings.spark,
        **(own_cluster(os.environ) if settings.intake_master == OWN_CLUSTER else {}),
        **EXPRESSION_CONF,
    }


def own_cluster(environment: Mapping[str, str]) -> dict[str, str]:
    """Where the API server of the cluster is that this pod is in, as every pod is told."""
    try:
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
        pod = environment["POD_NAME"]
    except KeyError as error:
        raise SessionError(
            f"intake-master is k8s, but {error.args[0]} is not set: is this a pod? Else give the "
            "API server as k8s://https://host:port."
        ) from None
    return {
        "spark.master": f"k8s://https://{f'[{host}]' if ':' in host else host}:{port}",
        # executors are owned by this pod, so that none is left when it is gone, however it went
        "spark.kubernetes.driver.pod.name": pod,
        # Two drivers, one after the other, must not want pods of the same names: in another pod, or
        # in this one after a crash, whose executors' pods are still there.
        "spark.kubernetes.executor.podNamePrefix": f"{pod}-{secrets.token_hex(3)}",
    }


def start_session(settings: Settings, *, jars: list[Path], request_partitions: int) -> SparkSession:
    """A session with a task slot for each request partition: a real-time task never ends."""
    slots = request_partitions + _SPARE_SLOTS
    intake_dir(settings).mkdir(parents=True, exist_ok=True)
    # These are arguments of the JVM's process, for all to see. Kafka's secrets are not among them:
    # they are options of the query.
    builder = SparkSession.builder
    for name, value in spark_conf(settings, jars=jars, slots=slots).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Py4JJavaError as error:
        raise SessionError(f"Spark cannot be started: {_root(error.java_exception)}") from error
    if settings.intake_mode != "real-time":
        return session
    patience = 0.0 if is_local(settings) else _PATIENCE_SECONDS
    try:
        available = _wait_for_slots(session, request_partitions, patience=patience)
    except (Py4JError, OSError) as error:
        raise SessionError(
            "Spark has ended while it waited for executors: the log above tells why their pods "
            "could not be made or did not stay (a right, a quota, an image, memory)."
        ) from error
    if available < request_partitions:
        session.stop()
        enough = (
            f"give Spark at least {request_partitions} slots (intake-master local[{slots}])"
            if is_local(settings)
            else f"see why executors with {request_partitions} slots in all do not run"
        )
        raise SessionError(
            f"Spark has {available} task slots and the topics with requests {request_partitions} "
            f"partitions: real-time mode keeps one task for each of them, so {enough}, or set "
            "intake-mode to micro-batch."
        )
    return session


def is_local(settings: Settings) -> bool:
    """Whether the tasks run in the JVM of this process."""
    return not settings.intake_master or settings.intake_master.startswith("local")


def _root(exception: Any) -> str:
    """What is at the bottom of an exception of the JVM: a right that is lacking, an address."""
    while (cause := exception.getCause()) is not None:
        exception = cause
    return " ".join(str(exception.getMessage() or exception).split())[:_REASON_CHARS]


def _wait_for_slots(session: SparkSession, wanted: int, *, patience: float) -> int:
    """Task slots; the executors of a cluster need a while to register."""
    deadline = time.monotonic() + patience
    while (found := task_slots(session)) < wanted:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return found


def task_slots(session: SparkSession) -> int:
    """How many tasks can run now. The default parallelism would not do: on a cluster it is never
    less than two."""
    sc: Any = session.sparkContext
    context = sc._jsc.sc()  # noqa: SLF001 PySpark does not tell otherwise
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def is_stopped(spark: SparkSession) -> bool:
    """Whether Spark itself has ended, and not only a query."""
    context: Any = spark.sparkContext
    return bool(context._jsc.sc().isStopped())  # noqa: SLF001 PySpark does not tell otherwise
