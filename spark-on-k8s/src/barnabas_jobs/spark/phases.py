"""Names what Spark does, for those who watch a job: in the description and a tag of Spark's own jobs.

Spark counts what its tasks have read. A phase whose tasks write elsewhere counts by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

TAG: Final = "barnabas.phase="
DESCRIPTION: Final = "spark.job.description"

_done: Final[dict[str, Callable[[], int]]] = {}
"""The function that counts the records done, by the name of a phase of this process."""


class Phase(NamedTuple):
    """The phase of a job, with the number of its records, if that is known. The name has no comma."""

    name: str
    records: int | None

    @property
    def tag(self) -> str:
        """The tag that Spark keeps for the phase."""
        return f"{TAG}{'' if self.records is None else self.records}={self.name}"


def of_tag(tag: str) -> Phase | None:
    """Return the phase that a tag stands for; None if the tag is somebody else's."""
    if not tag.startswith(TAG):
        return None
    records, _, name = tag.removeprefix(TAG).partition("=")
    return Phase(name, int(records) if records else None)


def records_done(name: str) -> int | None:
    """Return the number that a phase counts by itself; None if Spark counts. Raises JobFailed."""
    return _done[name]() if name in _done else None


@contextmanager
def phase(
    spark: SparkSession, name: str, records: int | None = None, done: Callable[[], int] | None = None
) -> Iterator[None]:
    """The Spark jobs that this thread starts inside belong to this phase, which may have several blocks.

    `done`: how many records are done, where Spark does not know; who watches asks for it in a thread of its own.
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
        context.setJobDescription(before)  # type: ignore[arg-type]  # None takes it away.
