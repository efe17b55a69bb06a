"""The name of a run. The program that starts the driver gives the same name to all attempts of a run."""

from typing import Final

from pyspark.sql import SparkSession

RUN: Final = "spark.barnabas.run"


def run_name(spark: SparkSession) -> str | None:
    """Return the name of the run, or None if a user started the job."""
    return spark.conf.get(RUN, None) or None
