#!/opt/punctual/bin/python
"""Starts Spark's JVM in the worker's image, in place of PySpark's `bin/spark-submit`.

That one is a bash script, and the image is to work without a shell. What it does is asked of the
same Java program: it prints the command of the JVM, its words separated by NUL characters.
"""

import os
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Become the JVM."""
    home = Path(os.environ.get("SPARK_HOME") or Path(__file__).resolve().parents[1])
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    library = next((home / "jars").glob("scala-library-*.jar")).stem.rsplit("-", 1)[1]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": ".".join(library.split(".")[:2]),
    }
    launcher = [java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{home}/jars/*"]
    launcher += ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
    asked = subprocess.run(  # noqa: S603 our own image's Java
        [*launcher, *sys.argv[1:]], env=environment, stdout=subprocess.PIPE, check=False
    )
    if asked.returncode != 0:
        sys.exit(asked.returncode)
    _, _, words = asked.stdout.partition(b"\0\n")  # before it: what the launcher has to say
    command = [os.fsdecode(word) for word in words.split(b"\0")[:-1]]
    if not command:
        sys.exit(f"Spark's launcher gave no command but {asked.stdout!r}")
    os.execvpe(command[0], command, environment)  # noqa: S606 as the launcher says


if __name__ == "__main__":
    main()
