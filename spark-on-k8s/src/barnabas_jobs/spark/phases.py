"""The phases of a job as descriptions and tags of Spark jobs, for those who watch the job.

Spark counts the records that its tasks read. A phase that reports other numbers, such as records written to Kafka,
counts its records itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

TAG: Final = "barnabas.phase="
DESCRIPTION: Final = "spark.job.description"

_done: Final[dict[str, Callable[[], int]]] = {}
"""The function that counts the finished records, by the name of a phase of this process."""


class Phase(NamedTuple):
    """A phase of a job, and the number of its records if known; the name has no comma."""

    name: str
    records: int | None

    @property
    def tag(self) -> str:
        """The tag of Spark jobs in this phase."""
        return f"{TAG}{'' if self.records is None else self.records}={self.name}"


def of_tag(tag: str) -> Phase | None:
    """Return the phase of a tag, or None if the tag is not of this module."""
    if not tag.startswith(TAG):
        return None
    records, _, name = tag.removeprefix(TAG).partition("=")
    return Phase(name, int(records) if records else None)


def records_done(name: str) -> int | None:
    """Return the number of records that a phase counts itself, or None if Spark counts them.

    Raises JobFailed if the phase cannot count.
    """
    return _done[name]() if name in _done else None


@contextmanager
def phase(
    spark: SparkSession, name: str, records: int | None = None, done: Callable[[], int] | None = None
) -> Iterator[None]:
    """Mark the Spark jobs that this thread starts in the block as part of the phase.

    A phase may have several blocks. `done` counts the finished records if Spark cannot; the thread that watches the
    job calls it.
    """
    if done is not None:
        _done[name] = done
    context = spark.sparkContext
    before = context.getLocalProperty(DESCRIPTION)
    tag = Phase(name, records).tag
    context.setJobDescription(name)
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)
        context.setJobDescription(before)  # type: ignore[arg-type]  # None removes the property.
