"""A log that refuses appends or acknowledgements until a thread has done some work on the disk for it."""

from typing import Protocol

from barnabas_broker.storage.logs.log_syncs import LogSyncs
from barnabas_broker.storage.producer_state.log_producers import LogProducers, ProducerReplay
from barnabas_core.topic_partition import TopicPartition


class WaitingLog(Protocol):
    """The attributes of a `Log` that are needed to sync the log, or to complete its truncation."""

    topic_partition: TopicPartition
    syncs: LogSyncs
    known_producers: LogProducers
    log_end_offset: int

    def flush(self) -> None:
        """Block until all records are synced. Raises StorageError."""
        ...

    def producer_replay(self) -> ProducerReplay:
        """Return an object whose method `run` rebuilds the producer states of the log. Raises StorageError.

        The method `run` may be called in a thread.
        """
        ...


def sync_now(log: WaitingLog) -> None:
    """Sync the log at once, for callers without an event loop. The call blocks. Raises StorageError."""
    log.flush()


def complete_truncation(log: WaitingLog) -> None:
    """Rebuild the producer states of a truncated log, and let the log accept appends. Raises StorageError.

    The caller has written the checkpoints. The call blocks.
    """
    replay = log.producer_replay()
    replay.run()
    log.known_producers.reloaded(replay)
