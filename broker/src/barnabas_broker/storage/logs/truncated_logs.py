"""Completes a truncation before the log takes appends again (docs/explanation/storage-guarantees.md).

A new log waits here, too, if the checkpoints have an earlier one of its name.

The next start takes for synced what lies below a recovery point in the checkpoint. So a log that was cut below it takes
nothing new before the cut and the lower one are on the disk. One write of the checkpoint does that for all logs of a
directory. Then the log's producers are loaded from the last snapshot that is left.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_broker.storage.errors import InvalidBatch, StorageError, storage_error
from barnabas_broker.storage.logs.log_syncs import LogSyncs
from barnabas_broker.storage.producer_state.log_producers import LogProducers, ProducerReplay
from barnabas_broker.storage.segments.segments import Segments
from barnabas_core.topic_partition import TopicPartition


class TruncatedLog(Protocol):
    """The part of a `Log` that completes a truncation of it."""

    topic_partition: TopicPartition
    log_dir: str
    directory: str
    files: FileSystem
    segments: Segments
    syncs: LogSyncs
    truncations: int
    known_producers: LogProducers

    @property
    def takes_appends(self) -> bool:
        """True unless the truncation is not complete yet."""
        ...

    def producer_replay(self) -> ProducerReplay:
        """Return what a thread has to run. StorageError."""
        ...


class DirOfLogs(Protocol):
    """The part of a `LogDir` that completes truncations of its logs."""

    @property
    def logs(self) -> Mapping[TopicPartition, TruncatedLog]:
        """The loaded logs by partition."""
        ...

    def checkpoint_anew(self) -> None:
        """Write the lower recovery points; blocks. StorageError."""
        ...


class CutLog(NamedTuple):
    """A log, with its number of truncations: work for it is void once it is truncated again."""

    log: TruncatedLog
    truncations: int

    @classmethod
    def now(cls, log: TruncatedLog) -> "CutLog":
        """Take the log as it is now."""
        return cls(log, log.truncations)

    @property
    def is_current(self) -> bool:
        """True if it has not been truncated since."""
        return self.log.truncations == self.truncations

    @property
    def awaits_checkpoint(self) -> bool:
        """True if a checkpoint has to be written before the log takes appends."""
        return self.log.known_producers.await_checkpoint

    def reloaded(self, replay: ProducerReplay) -> None:
        """Let the log take appends after its replay, unless it was truncated again."""
        if self.is_current:
            self.log.known_producers.reloaded(replay)


def complete_truncation(log: TruncatedLog) -> None:
    """Block until the log takes appends again; its checkpoints have been written, if it has any. StorageError."""
    _reload(CutLog.now(log))


def _reload(cut: CutLog) -> None:
    replay = cut.log.producer_replay()
    replay.run()
    cut.reloaded(replay)


def cut_jobs(logs: Sequence[CutLog]) -> list[FlushJob]:
    """Return the syncs that `make_durable` has to run for these logs. StorageError."""
    return [job for cut in logs if cut.awaits_checkpoint and (job := _cut_job(cut.log)) is not None]


def _cut_job(log: TruncatedLog) -> FlushJob | None:
    """Return the sync of the file that was cut, and of the names in its directory. A new log has none.

    A power cut could bring back what was cut, before a later segment that outlives it. It could bring back the files of
    a log that starts again from nothing, when no checkpoint knows any more what compaction had removed from them.
    """
    active = log.segments.active
    if not log.files.exists(active.path(file_names.LOG)):
        return None
    try:
        sync = active.file.sync
    except (OSError, InvalidBatch) as error:
        raise storage_error(log.log_dir, log.directory, error) from error
    calls = (sync, partial(log.files.sync_dir, log.directory))
    return FlushJob(log.log_dir, log.directory, calls, log.syncs.recovery_point, log.truncations)


def make_durable(jobs: Sequence[FlushJob], log_dir: DirOfLogs) -> None:
    """Make the truncations of a log dir's logs durable against power cuts. Blocks. Raises StorageError."""
    for job in jobs:
        job.run()
    log_dir.checkpoint_anew()


class TruncatedLogs:
    """The logs that wait. `on_added` is called with their directory; by default it blocks until they are complete."""

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[TruncatedLog, None] = WeakKeyDictionary()
        self.on_added: Callable[[DirOfLogs], object] = self.complete

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, log: TruncatedLog) -> None:
        """Add a truncated log to those that wait."""
        self._waiting[log] = None

    def take(self, log_dir: DirOfLogs) -> list[CutLog]:
        """Take the waiting logs of a log dir; `put_back` returns those that could not be completed.

        A log that a thread is still loading waits on. A deleted log leaves by itself.
        """
        waiting = [log for ref in self._waiting.keyrefs() if (log := ref()) is not None]
        here = [log for log in waiting if log_dir.logs.get(log.topic_partition) is log]
        for log in here:
            del self._waiting[log]
        return [CutLog.now(log) for log in here]

    def put_back(self, logs: list[CutLog]) -> None:
        """Add logs again whose truncation could not be completed."""
        self._waiting.update({cut.log: None for cut in logs if not cut.log.takes_appends})

    def complete(self, log_dir: DirOfLogs) -> None:
        """Block until all logs of a directory take appends. StorageError."""
        taken = self.take(log_dir)
        try:
            if any(cut.awaits_checkpoint for cut in taken):
                make_durable(cut_jobs(taken), log_dir)
            for cut in taken:
                _reload(cut)
        except StorageError:
            self.put_back(taken)
            raise
