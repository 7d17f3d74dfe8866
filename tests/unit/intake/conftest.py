"""A Spark session for the expressions: static data, no Kafka."""

from collections.abc import Iterator

import pytest
from punctual_worker.intake.session import EXPRESSION_CONF, spark_conf
from punctual_worker.local.jars import jar_paths
from punctual_worker.settings import Settings
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.execution.arrow.pyspark.enabled", "false")
    jars = jar_paths("spark")
    builder = builder.config("spark.jars", ",".join(map(str, jars)))
    conf = spark_conf(Settings(), jars=jars, slots=2)
    for java_options in ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"):
        builder = builder.config(java_options, conf[java_options])
    for name, value in EXPRESSION_CONF.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
