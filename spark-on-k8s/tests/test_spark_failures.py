"""Error messages for users if Spark fails. No Spark runs here."""

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
def test_the_end_of_sparks_java_process_is_reported(error: Exception) -> None:
    """The first call without an answer fails like this, and so do later calls while contexts are closed."""
    told = "archiving flights: Spark's Java process has ended; .* OutOfMemoryError, set --conf spark.driver"
    with pytest.raises(JobFailed, match=told), spark_failures("archiving flights"):
        raise error


def test_a_failure_to_restore_spark_settings_does_not_hide_the_first_failure() -> None:
    """Spark may be gone. The exit code of a continuous archive that failed late depends on the first failure."""

    class Conf(dict[str, str]):
        def set(self, name: str, value: str) -> None:
            self[name] = value

        def unset(self, name: str) -> None:
            raise ConnectionRefusedError(111, "no")

    spark: Any = SimpleNamespace(conf=Conf())
    with pytest.raises(JobFailedLate, match="Java has ended"), reading(spark, "__consumer_offsets"):
        raise JobFailedLate("Java has ended")


def test_too_little_memory_is_reported_with_the_setting() -> None:
    with (
        pytest.raises(JobFailed, match="Java has too little memory; set --conf"),
        spark_failures("archiving flights"),
    ):
        raise PySparkException("Task failed: java.lang.OutOfMemoryError: Java heap space")
