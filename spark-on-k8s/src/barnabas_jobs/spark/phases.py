"""The phases of a job. The description and the tag of a Spark job say to which phase the Spark job belongs.

Usually the progress of a phase is the number of records that Spark's tasks have read. If a phase measures its progress
by other records, such as those written to Kafka, the phase counts these records itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

TAG: Final = "barnabas.phase="
DESCRIPTION: Final = "spark.job.description"

_done: Final[dict[str, Callable[[], int]]] = {}
"""The functions that return the number of finished records, by the name of the phase."""


class Phase(NamedTuple):
    """A phase of a job, and the number of records that the phase processes, or None if this number is unknown.

    The name must not contain a comma, because Spark allows no comma in the tag of a job.
    """

    name: str
    records: int | None

    @property
    def tag(self) -> str:
        """The tag of Spark jobs in this phase."""
        return f"{TAG}{'' if self.records is None else self.records}={self.name}"


def of_tag(tag: str) -> Phase | None:
    """Return the phase that the tag of a Spark job names, or None if the tag names no phase."""
    if not tag.startswith(TAG):
        return None
    records, _, name = tag.removeprefix(TAG).partition("=")
    return Phase(name, int(records) if records else None)


def records_done(name: str) -> int | None:
    """Return the number of finished records if the phase counts them itself, or None if Spark counts them.

    Raises JobFailed if the phase's own count fails.
    """
    return _done[name]() if name in _done else None


@contextmanager
def phase(
    spark: SparkSession, name: str, records: int | None = None, done: Callable[[], int] | None = None
) -> Iterator[None]:
    """Mark the Spark jobs that this thread starts in the `with` block as part of the phase.

    Several blocks may belong to one phase. If Spark's own count does not show the finished records, pass as `done` a
    function that returns their number. The thread that watches the job calls `done`.
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
