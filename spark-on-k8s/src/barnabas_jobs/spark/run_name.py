"""Which run a session belongs to, where one has a name: whoever starts drivers gives all tries of a run the same."""

from typing import Final

from pyspark.sql import SparkSession

RUN: Final = "spark.barnabas.run"


def run_name(spark: SparkSession) -> str | None:
    """None of a run that was started by hand."""
    return spark.conf.get(RUN, None) or None
