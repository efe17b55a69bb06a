"""What users are told where Spark fails. No Spark runs here."""

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.spark.failures import spark_failures


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "no")]
)
def test_a_java_process_that_has_ended_is_told(error: Exception) -> None:
    """The first call that it does not answer, and those after it, as of contexts that end."""
    told = "archiving flights: Spark's Java process has ended; .* OutOfMemoryError, give it more by --conf spark.driver"
    with pytest.raises(JobFailed, match=told), spark_failures("archiving flights"):
        raise error


def test_too_little_memory_is_told() -> None:
    with (
        pytest.raises(JobFailed, match="Java has too little memory; give it more"),
        spark_failures("archiving flights"),
    ):
        raise PySparkException("Task failed: java.lang.OutOfMemoryError: Java heap space")
