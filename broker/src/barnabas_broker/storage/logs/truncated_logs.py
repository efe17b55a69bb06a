"""What has to be done after a truncation before the log takes appends again (docs/decisions/truncation.md).

A new log of whose name the checkpoints have an earlier one waits here, too.

What lies below a recovery point in the checkpoint is taken for synced by the next start. So a log that was cut below it
gets nothing new before the cut and the lower one are on the disk; one write of the checkpoint does that for all logs of
a directory.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_broker.storage.errors import InvalidBatch, StorageError, storage_error
from barnabas_broker.storage.producer_state.log_producers import LogProducers, ProducerLookup
from barnabas_broker.storage.segments.segments import Segments
from barnabas_core.topic_partition import TopicPartition


class TruncatedLog(Protocol):
    """A `Log`, as far as a truncation of it has to be completed."""

    topic_partition: TopicPartition
    log_dir: str
    directory: str
    files: FileSystem
    segments: Segments
    recovery_point: int
    truncations: int
    known_producers: LogProducers

    @property
    def takes_appends(self) -> bool:
        """False until it is complete."""
        ...

    def producer_lookup(self) -> ProducerLookup | None:
        """What a thread has to find, if anything."""
        ...


class DirOfLogs(Protocol):
    """A `LogDir`, as far as its logs were truncated."""

    @property
    def logs(self) -> Mapping[TopicPartition, TruncatedLog]:
        """The loaded logs by partition."""
        ...

    def checkpoint_anew(self) -> None:
        """Write the lower recovery points; blocks. StorageError."""
        ...


class CutLog(NamedTuple):
    """A log, and how often it had been truncated: what is done for it is void once it is truncated again."""

    log: TruncatedLog
    truncations: int

    @classmethod
    def now(cls, log: TruncatedLog) -> "CutLog":
        """As it is now."""
        return cls(log, log.truncations)

    @property
    def is_current(self) -> bool:
        """Whether it has not been truncated since."""
        return self.log.truncations == self.truncations

    def checkpointed(self) -> None:
        """The checkpoints of its directory were written after the truncation."""
        if self.is_current:
            self.log.known_producers.checkpointed()

    def lookup(self) -> ProducerLookup | None:
        """What a thread has to `run` then, if anything, before `found`. StorageError."""
        return self.log.producer_lookup() if self.is_current else None

    def found(self, lookup: ProducerLookup) -> None:
        """Takes in what a lookup found that has run, unless the log was truncated again."""
        if self.is_current:
            self.log.known_producers.found(lookup)


def complete_truncation(log: TruncatedLog) -> None:
    """Blocks until the log takes appends again; its checkpoints have been written, if it has any. StorageError."""
    _complete(CutLog.now(log))


def _complete(cut: CutLog) -> None:
    cut.checkpointed()
    lookup = cut.lookup()
    if lookup is not None:
        lookup.run()
        cut.found(lookup)


def cut_jobs(logs: Sequence[CutLog]) -> list[FlushJob]:
    """The syncs that `make_durable` has to run for these logs. Raises StorageError."""
    return [job for cut in logs if (job := _cut_job(cut.log)) is not None]


def _cut_job(log: TruncatedLog) -> FlushJob | None:
    """The sync of the file that was cut, where that had been synced, and of the names. A new log has none.

    What was cut could come back with a power cut, before a later segment that outlives that; so could the files of a
    log that begins anew, once no checkpoint knows any more what compaction had removed of them.
    """
    active = log.segments.active
    if not log.known_producers.await_checkpoint or not log.files.exists(active.path(file_names.LOG)):
        return None
    try:
        sync = active.file.sync
    except (OSError, InvalidBatch) as error:
        raise storage_error(log.log_dir, log.directory, error) from error
    calls = (sync, partial(log.files.sync_dir, log.directory))
    return FlushJob(log.log_dir, log.directory, calls, log.recovery_point, log.truncations)


def make_durable(jobs: Sequence[FlushJob], log_dir: DirOfLogs) -> None:
    """Blocks until no power cut brings back what was cut of a directory's logs. For a thread. StorageError."""
    for job in jobs:
        job.run()
    log_dir.checkpoint_anew()


class TruncatedLogs:
    """Those that wait. `on_added` hears that there is one; who has no loop completes it at once."""

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[TruncatedLog, None] = WeakKeyDictionary()
        self.on_added: Callable[[DirOfLogs], object] = self.complete

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, log: TruncatedLog) -> None:
        """It was truncated, and waits."""
        self._waiting[log] = None

    def take(self, log_dir: DirOfLogs) -> list[CutLog]:
        """Those that a directory has, as they are now; `put_back` what could not be completed.

        One that is still being loaded, in a thread, waits on; one that was deleted goes by itself.
        """
        waiting = [log for ref in self._waiting.keyrefs() if (log := ref()) is not None]
        here = [log for log in waiting if log_dir.logs.get(log.topic_partition) is log]
        for log in here:
            del self._waiting[log]
        return [CutLog.now(log) for log in here]

    def put_back(self, logs: list[CutLog]) -> None:
        """The logs wait again: their truncation could not be completed."""
        self._waiting.update({cut.log: None for cut in logs if not cut.log.takes_appends})

    def complete(self, log_dir: DirOfLogs) -> None:
        """Blocks until all of a directory take appends. StorageError."""
        taken = self.take(log_dir)
        try:
            if taken:
                make_durable(cut_jobs(taken), log_dir)
            for cut in taken:
                _complete(cut)
        except StorageError:
            self.put_back(taken)
            raise
