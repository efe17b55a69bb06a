"""The continuous form of `archive`: a Structured Streaming query, each of whose batches is one commit.

A query starts at the offsets where the table ends, and ignores the checkpoints of earlier queries. So after a stop,
the records of an uncommitted batch are read again, and those of a committed batch are not. A signal ends the query
between two commits.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals, signal
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from barnabas_jobs.jobs.archive_commit import Run, commit, write
from barnabas_jobs.planning.committed import Committed
from barnabas_jobs.planning.errors import JobFailed, JobFailedLate
from barnabas_jobs.planning.ranges import OffsetRange
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import batch_ends, stream_of_topic

POLL_S: Final = 0.2
LATE_S: Final = 3600.0
"""The running time in seconds after which a failure does not count against the backoffLimit of the Kubernetes Job."""
ENDING: Final = (Signals.SIGTERM, Signals.SIGINT)
SignalName = Literal["SIGTERM", "SIGINT"]


class Stream:
    """A streaming query that archives a topic."""

    def __init__(self, job: Run, stopping: threading.Event, committed: Committed) -> None:
        self._committed = committed
        self._job = job
        self._checkpoint = Path()
        self._stopping = stopping
        self._busy = threading.Lock()
        self._failed: Exception | None = None

    def run(self, trigger_seconds: int, records_max: int) -> None:
        """Archive batches until `stopping` is set, and finish the running batch.

        Raises JobFailed on failure, or JobFailedLate if the run fails after it has run for an hour or more.
        """
        began_s = self._job.clock()
        try:
            self._run(trigger_seconds, records_max)
        except JobFailed as failure:
            if self._job.clock() - began_s < LATE_S:
                raise
            raise JobFailedLate(str(failure)) from failure

    def _run(self, trigger_seconds: int, records_max: int) -> None:
        with spark_failures(f"archiving {self._job.topic.name}"), TemporaryDirectory(prefix="archive-") as checkpoint:
            self._checkpoint = Path(checkpoint)
            query = self._begin(trigger_seconds, records_max)
            while query.isActive and not self._stopping.wait(POLL_S):
                pass
            if query.isActive:
                with self._busy:  # A batch holds the lock, so the query stops between two batches.
                    query.stop()
            if self._failed is not None:
                raise self._failed
            query.awaitTermination()

    def _begin(self, trigger_seconds: int, records_max: int) -> StreamingQuery:
        topic = self._job.topic.name
        records = stream_of_topic(self._job.spark, self._job.cluster.bootstrap, topic, self._starts(), records_max)
        writer = records.writeStream.foreachBatch(self._batch).trigger(processingTime=f"{trigger_seconds} seconds")
        return writer.option("checkpointLocation", self._checkpoint.as_uri()).start()

    def _starts(self) -> dict[int, int]:
        """Return by partition the offset at which the query starts.

        This is the offset after the last archived one, or the start of the log if the archive lacks the partition.
        """
        ends, log = self._committed.ends, self._job.cluster.bounds(self._job.topic)
        ends.update({partition: bounds.earliest for partition, bounds in log.items() if partition not in ends})
        return {partition: ends[partition] for partition in log}

    def _batch(self, records: DataFrame, number: int) -> None:
        if self._failed is not None or self._stopping.is_set() or not self._busy.acquire(blocking=False):
            return
        try:
            self._commit(records, number)
        except Exception as error:
            self._failed = error
            raise
        finally:
            self._busy.release()

    def _commit(self, records: DataFrame, number: int) -> None:
        """Commit a batch, which ends where it was read to, as Spark planned before it began.

        So offsets without a record, such as those of transaction markers, are archived, too.
        """
        archived, planned = self._committed.ends, batch_ends(self._checkpoint, number, self._job.topic.name)
        ranges = [OffsetRange(each, archived.get(each, 0), end) for each, end in sorted(planned.items())]
        if any(each.offsets for each in ranges):
            commit(self._job, self._committed, write(self._job, records, ranges), ranges, [])


class Stopping:
    """A request to end the job, which is made by setting `event`.

    `ended_by` is the name of the signal that set the event, or None if another thread set it.
    """

    def __init__(self, event: threading.Event) -> None:
        self.event = event
        self.ended_by: SignalName | None = None

    def stop(self, number: int, _: FrameType | None) -> None:
        """Set the event; keep the name of the signal in `ended_by` if the event was not set yet."""
        if not self.event.is_set():
            self.ended_by = "SIGTERM" if number == Signals.SIGTERM else "SIGINT"
        self.event.set()


@contextmanager
def until_signal(event: threading.Event | None = None) -> Iterator[Stopping]:
    """Set the event on SIGTERM or SIGINT while the block runs, if this is the main thread."""
    stopping = Stopping(event or threading.Event())
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = {number: signal(number, stopping.stop) for number in ENDING}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal(number, handler)
