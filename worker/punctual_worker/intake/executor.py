"""`punctual executor`: a Spark executor in a pod that intake, its driver, has asked for.

Spark's own images begin with a shell script for this; ours is to work without a shell. What is
wanted comes in the variables that Spark sets in such pods.
"""

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from punctual_worker.errors import PunctualError

_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")


class ExecutorError(PunctualError):
    """This is not a pod of Spark's."""


def run() -> None:
    """Become the JVM."""
    words = command(os.environ, jars=_jars())
    os.execv(words[0], words)  # noqa: S606 no shell, as in the rest of the image


def command(environment: Mapping[str, str], *, jars: Path) -> list[str]:
    """The JVM's command line."""
    wanted = {"JAVA_HOME", "SPARK_EXECUTOR_MEMORY", *_ARGUMENTS.values()}
    if missing := sorted(wanted - environment.keys()):
        raise ExecutorError(
            f"{', '.join(missing)} is not set: executors are started by intake, in a cluster."
        )
    options = {int(m[1]): environment[m[0]] for m in map(_OPTION.fullmatch, environment) if m}
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    arguments = [
        word for name, variable in _ARGUMENTS.items() for word in (name, environment[variable])
    ]
    return [
        str(Path(environment["JAVA_HOME"]) / "bin" / "java"),
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        *(option for _, option in sorted(options.items())),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join((*filter(None, (environment.get("SPARK_CLASSPATH"),)), f"{jars}/*")),
        _BACKEND,
        *arguments,
    ]


def _jars() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ExecutorError(
            "The Python package pyspark is missing: pip install 'punctual[worker]'."
        )
    return Path(found.origin).with_name("jars")
