"""The name of a run, which every try of the run gets from the program that starts drivers."""

from typing import Final

from pyspark.sql import SparkSession

RUN: Final = "spark.barnabas.run"


def run_name(spark: SparkSession) -> str | None:
    """Return the name of the run, or None if a user started the job."""
    return spark.conf.get(RUN, None) or None
