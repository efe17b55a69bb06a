"""What users are told where Spark fails. No Spark runs here."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from barnabas_jobs.planning.errors import JobFailed, JobFailedLate
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import reading


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("An error occurred while calling o17.sc"),
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "no"),
    ],
)
def test_a_java_process_that_has_ended_is_told(error: Exception) -> None:
    """The first call that it does not answer, and those after it, as of contexts that end."""
    told = "archiving flights: Spark's Java process has ended; .* OutOfMemoryError, set --conf spark.driver"
    with pytest.raises(JobFailed, match=told), spark_failures("archiving flights"):
        raise error


def test_settings_that_cannot_be_put_back_hide_no_failure() -> None:
    """Those of a Spark that is gone. A continuous archive that failed late has its exit code by its failure."""

    class Conf(dict[str, str]):
        def set(self, name: str, value: str) -> None:
            self[name] = value

        def unset(self, name: str) -> None:
            raise ConnectionRefusedError(111, "no")

    spark: Any = SimpleNamespace(conf=Conf())
    with pytest.raises(JobFailedLate, match="Java has ended"), reading(spark, "__consumer_offsets"):
        raise JobFailedLate("Java has ended")


def test_too_little_memory_is_told() -> None:
    with (
        pytest.raises(JobFailed, match="Java has too little memory; set --conf"),
        spark_failures("archiving flights"),
    ):
        raise PySparkException("Task failed: java.lang.OutOfMemoryError: Java heap space")
