"""The continuous form of `archive`: a Structured Streaming query, each of whose batches is one commit.

A query starts at the offsets where the ledger ends, and ignores the checkpoints of earlier queries. So after a stop,
the records of an uncommitted batch are read again, and those of a committed batch are not. A signal ends the query
between two commits.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals, signal
from types import FrameType
from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from barnabas_jobs.jobs.archive_commit import Run, commit, write
from barnabas_jobs.jobs.archive_standing import ArchiveStanding
from barnabas_jobs.planning.committed import Committed
from barnabas_jobs.planning.errors import JobFailed, JobFailedLate
from barnabas_jobs.planning.ranges import OffsetRange
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import read_to, stream_of_topic

POLL_S: Final = 0.2
LATE_S: Final = 3600.0
"""The running time in seconds after which a failure does not count against the backoffLimit of the Kubernetes Job."""
ENDING: Final = (Signals.SIGTERM, Signals.SIGINT)
SignalName = Literal["SIGTERM", "SIGINT"]


class Stream:
    """A streaming query that archives a topic."""

    def __init__(self, job: Run, stopping: threading.Event, committed: Committed, progress: ArchiveStanding) -> None:
        self._progress = progress
        self._committed = committed
        self._job = job
        self._unknown: set[int] = set()
        """The partitions that appear in no ledger entry yet.

        The next ledger entry has the start offsets of these partitions, even if it has none of their records.
        """
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
        with spark_failures(f"archiving {self._job.topic.name}"):
            query = self._begin(trigger_seconds, records_max)
            while query.isActive and not self._stopping.wait(POLL_S):
                self._progress.read = read_to(query, self._job.topic.name)
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
        return writer.start()

    def _starts(self) -> dict[int, int]:
        """Return by partition the offset at which the query starts.

        This is the offset after the last archived one, or the start of the log if the archive lacks the partition.
        """
        ends, log = self._committed.ends, self._job.cluster.bounds(self._job.topic)
        self._unknown = log.keys() - ends.keys()
        ends.update({partition: log[partition].earliest for partition in self._unknown})
        return {partition: ends[partition] for partition in log}

    def _batch(self, records: DataFrame, _: int) -> None:
        if self._failed is not None or self._stopping.is_set() or not self._busy.acquire(blocking=False):
            return
        try:
            self._commit(records)
        except Exception as error:
            self._failed = error
            raise
        finally:
            self._busy.release()

    def _commit(self, records: DataFrame) -> None:
        """Commit a batch as one ledger entry, which ends after the last record of the batch in each partition.

        Offsets after that record, such as those of transaction markers, belong to a later ledger entry.
        """
        archived, number = self._committed.ends, self._committed.number
        written = write(self._job, number, records)
        ends = {partition: found.last + 1 for partition, found in written.found.items()}
        if ends:
            ends = {partition: archived[partition] for partition in self._unknown} | ends
            ranges = [
                OffsetRange(partition, archived.get(partition, 0), end) for partition, end in sorted(ends.items())
            ]
            self._committed.add(commit(self._job, number, written, ranges, []))
            self._unknown.clear()


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
