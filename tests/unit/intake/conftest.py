"""A Spark session for the expressions: static data, no Kafka, no jars."""

from collections.abc import Iterator

import pytest
from punctual_worker.intake.session import EXPRESSION_CONF
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.execution.arrow.pyspark.enabled", "false")
    for name, value in EXPRESSION_CONF.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
