"""The run of a session, if it has a name: all tries of a run get the same name from the program that starts drivers."""

from typing import Final

from pyspark.sql import SparkSession

RUN: Final = "spark.barnabas.run"


def run_name(spark: SparkSession) -> str | None:
    """Return the name of the run; None for one that was started by hand."""
    return spark.conf.get(RUN, None) or None
