"""Names what Spark does, for those who watch a job: in the description and a tag of Spark's own jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

TAG: Final = "barnabas.phase="
DESCRIPTION: Final = "spark.job.description"


class Phase(NamedTuple):
    """What is done, and with how many records, where that is known. The name has no comma."""

    name: str
    records: int | None

    @property
    def tag(self) -> str:
        """What Spark keeps of it."""
        return f"{TAG}{'' if self.records is None else self.records}={self.name}"


def of_tag(tag: str) -> Phase | None:
    """What a tag says; None where it is somebody else's."""
    if not tag.startswith(TAG):
        return None
    records, _, name = tag.removeprefix(TAG).partition("=")
    return Phase(name, int(records) if records else None)


@contextmanager
def phase(spark: SparkSession, name: str, records: int | None = None) -> Iterator[None]:
    """The Spark jobs that this thread starts inside belong to this phase, which may have several blocks."""
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
