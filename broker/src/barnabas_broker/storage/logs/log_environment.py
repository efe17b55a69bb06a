"""The objects that all logs of a broker share; tests and simulations pass their own."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from barnabas_broker.storage.disk.disk_threads import DiskThreads
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.disk.open_files import OpenFiles
from barnabas_broker.storage.disk.trash import Trash
from barnabas_broker.storage.logs.waiting_log import WaitingLog, complete_truncation, sync_now
from barnabas_broker.storage.producer_state.producers import ProducerCount
from barnabas_broker.storage.segments.index_pages import IndexPages
from barnabas_core.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """The objects and settings that all logs share. A `Segment` uses only the attributes of `SegmentEnvironment`."""

    files: FileSystem
    open_files: OpenFiles
    trash: Trash
    random: Random
    producer_id_expiration_ms: int = 86_400_000
    segment_bytes_max: int = sys.maxsize
    """The largest size of a segment, even if `segment.bytes` is higher; a larger batch gets its own segment."""
    index_pages: IndexPages = field(default_factory=IndexPages)
    unflushed: dict[TopicPartition, None] = field(default_factory=dict)
    """The logs that may be due for a sync, because they have rolled a segment or have a `flush.ms`."""
    producer_count: ProducerCount = field(default_factory=ProducerCount)
    truncated: Callable[[WaitingLog], object] = complete_truncation
    """A function to call with each log that refuses appends until its truncation is complete (`truncated_logs`)."""
    disk_threads: DiskThreads = field(default_factory=DiskThreads)
    """The threads for blocking disk calls, by log dir."""
    sync_due: Callable[[WaitingLog], object] = sync_now
    """A function that requests a sync of a log, because the log has `flush.messages` unsynced records.

    Until the sync is done, each further append to the log calls the function again.
    """
