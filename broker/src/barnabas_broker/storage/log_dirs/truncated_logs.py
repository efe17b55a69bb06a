"""The completion of truncations; a truncated log refuses appends until then (docs/explanation/storage-guarantees.md).

After a restart, everything below a checkpointed recovery point counts as synced. A log that was truncated below its
recovery point therefore refuses appends until the truncation and the new recovery point are on the disk. One write of
the checkpoints serves all truncated logs of a log dir. After the write, the producer states of the logs are loaded from
the last remaining snapshots.

A new log also refuses appends until the checkpoints no longer list an earlier log with the same name.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_broker.storage.errors import StorageError, disk_access
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.waiting_log import WaitingLog
from barnabas_broker.storage.producer_state.log_producers import ProducerReplay


class CutLog(NamedTuple):
    """A log, and the number of its truncations at the time when a sync or replay of the log began.

    If the log is truncated again before the sync or replay has ended, the result is ignored.
    """

    log: Log
    truncations: int

    @classmethod
    def now(cls, log: Log) -> "CutLog":
        """Return a `CutLog` with the log's current number of truncations, for `is_current` to compare."""
        return cls(log, log.segments.truncations)

    @property
    def is_current(self) -> bool:
        """True if the log has not been truncated since this object was created."""
        return self.log.segments.truncations == self.truncations

    @property
    def awaits_checkpoint(self) -> bool:
        """True if the checkpoints must be rewritten before the log accepts appends."""
        return self.log.known_producers.await_checkpoint

    def reloaded(self, replay: ProducerReplay) -> None:
        """Give the log the rebuilt producer states and let it accept appends, unless it was truncated again."""
        if self.is_current:
            self.log.known_producers.reloaded(replay)


def _reload(cut: CutLog) -> None:
    replay = cut.log.producer_replay()
    replay.run()
    cut.reloaded(replay)


def cut_jobs(logs: Sequence[CutLog]) -> list[FlushJob]:
    """Return the jobs that sync truncated logs; `make_durable` runs the jobs. Raises StorageError."""
    return [job for cut in logs if cut.awaits_checkpoint and (job := _cut_job(cut.log)) is not None]


@disk_access
def _cut_job(log: Log) -> FlushJob | None:
    """Return a job that syncs the truncated file and its directory, or None for a new log without files.

    Without this sync, a power failure could bring truncated records back, and the next segment could have new records
    with the same offsets. A power failure could also bring back the old segments of an emptied log. The log would then
    count as uncompacted, because the checkpoints no longer have the offset up to which it is compacted.
    """
    active = log.segments.active
    if not log.files.exists(active.path(file_names.LOG)):
        return None
    calls = (active.file.sync, partial(log.files.sync_dir, log.directory))
    return FlushJob(log.log_dir, log.directory, calls, log.syncs.recovery_point, log.segments.truncations)


def make_durable(jobs: Sequence[FlushJob], log_dir: LogDir) -> None:
    """Run the jobs that sync truncated logs, then rewrite the checkpoints of the log dir.

    The call blocks. Raises StorageError.
    """
    for job in jobs:
        job.run()
    log_dir.checkpoint_anew()


class TruncatedLogs:
    """The logs whose truncation is incomplete.

    When a log is added, `on_added` is called with its log dir. The default `on_added` is `complete`, which returns
    after all truncations in the log dir are complete.
    """

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[WaitingLog, None] = WeakKeyDictionary()
        self.on_added: Callable[[LogDir], object] = self.complete

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, log: WaitingLog) -> None:
        """Add a log whose truncation is incomplete."""
        self._waiting[log] = None

    def take(self, log_dir: LogDir) -> list[CutLog]:
        """Remove and return the logs that are in `log_dir`.

        If the caller cannot complete the truncation of a log, it calls `put_back`. A log that a thread is still loading
        is not returned yet. Deleted logs disappear by themselves, because only weak references to logs are stored.
        """
        waiting = [log for ref in self._waiting.keyrefs() if (log := ref()) is not None]
        here = [log for each in waiting if (log := log_dir.logs.get(each.topic_partition)) is each]
        for log in here:
            del self._waiting[log]
        return [CutLog.now(log) for log in here]

    def put_back(self, logs: list[CutLog]) -> None:
        """Put back the logs whose truncation is still incomplete, so that `take` returns them again."""
        self._waiting.update({cut.log: None for cut in logs if cut.log.known_producers.are_held_back})

    def complete(self, log_dir: LogDir) -> None:
        """Complete the truncations of a log dir's logs, and let the logs accept appends.

        Syncs the logs, rewrites the checkpoints and rebuilds the producer states. The call blocks. Raises StorageError.
        """
        taken = self.take(log_dir)
        try:
            if any(cut.awaits_checkpoint for cut in taken):
                make_durable(cut_jobs(taken), log_dir)
            for cut in taken:
                _reload(cut)
        except StorageError:
            self.put_back(taken)
            raise
