"""Failures of Spark as one sentence each, for people who run jobs."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from barnabas_jobs.planning.errors import JobFailed

MORE_MEMORY: Final = (
    "set --conf spark.driver.memory=4g, or spark.executor.memory if executors run elsewhere; records of "
    "tens of megabytes need gigabytes of memory"
)
KNOWN: Final[Sequence[tuple[str, str]]] = (
    ("No space left on device", "the disk is full (No space left on device); free some space, and run the job again"),
    ("OutOfMemoryError", f"Java has too little memory; {MORE_MEMORY}"),
    ("Some data may have been lost", "records were deleted from the topic while the job read it; run the job again"),
    ("OffsetOutOfRangeException", "records were deleted from the topic while the job read it; run the job again"),
    (
        "overflows when converting to Spark's",
        "a record's timestamp is after the year 294246, because its producer does not write milliseconds",
    ),
    ("UnknownTopicOrPartitionException", "the topic, or a partition of it, was deleted while the job read it"),
    ("timestamp before the year 1900", "Spark or the table would change the timestamp, so the record is not archived"),
    (
        "does not fit the schema",
        "a value does not fit the schema; on_mismatch=keep archives such records with null in the column json",
    ),
    ("FAILED_READ_FILE", "a data file of the archive cannot be read; restore the file that Spark names from a backup"),
    (
        "is not a Parquet file",
        "a data file of the archive cannot be read; restore the file that Spark names from a backup",
    ),
    ("Failed to find data source: kafka", "the session has no Kafka connector; see `barnabas jobs fetch-jars`"),
)
OURS: Final = re.compile(r"^barnabas_jobs\.[\w.]+: (.+)$", re.MULTILINE)
"""A pattern for the last line of a Python worker's traceback, if this package defines the exception."""
LOST: Final = re.compile(r"An error occurred while calling \S+")
LINES_MAX: Final = 3


@contextmanager
def spark_failures(doing: str) -> Iterator[None]:
    """Turn failures of Spark in the `with` block into JobFailed, also if Spark's Java process has ended.

    The message has `doing`, which says what the job was doing, an explanation if the failure is in KNOWN, and Spark's
    own words.
    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        if _is_of_lost_java(error):
            raise JobFailed(
                f"{doing}: Spark's Java process has ended; its last output gives the reason. If the reason is "
                f"OutOfMemoryError, {MORE_MEMORY}"
            ) from error
        text = _text(error)
        known = next((meaning for sign, meaning in KNOWN if sign in text), None)
        message = f"{doing}: {known}. Spark says: {_cause(text)}" if known else f"{doing}: {_cause(text)}"
        raise JobFailed(message) from error


def _is_of_lost_java(error: Exception) -> bool:
    """True if the error shows that Spark's Java process has ended.

    The first call after the process has ended raises an error without a Java stack trace. Later calls fail to connect.
    """
    is_lost = type(error) is Py4JError and LOST.fullmatch(str(error)) is not None
    return is_lost or isinstance(error, Py4JNetworkError | ConnectionError)


def _text(error: Exception) -> str:
    """Return all messages, from the failure to its first cause."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    texts = [str(error)]
    while java is not None:
        texts.append(str(java))
        java = java.getCause()
    return "\n".join(texts)


def _cause(text: str) -> str:
    """Return the lines of Spark's error text that name the cause, without stack traces.

    If the text has the message of an exception of this package, return only this message. Otherwise return the last
    lines that contain a text from KNOWN, or simply the last lines if none does.
    """
    if ours := OURS.search(text):
        return ours[1]
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "..."))
    ]
    signs = [line for line in lines for sign, _ in KNOWN if sign in line]
    return " ".join(dict.fromkeys((signs or lines)[-LINES_MAX:]))
