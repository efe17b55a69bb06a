"""The clock, timers, files and network connections of a broker: real ones in `app.broker`, simulated ones in tests."""

import sys
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from barnabas_broker.metadata.documents import PARTITIONS_MAX
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.end_offsets import Links
from barnabas_broker.replication.fetch_session import STEPS, MoveSteps
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.inspection.inspector import BatchInspector
from barnabas_broker.wire.framing import FileSlice
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig


class NodeSizes(NamedTuple):
    """The limits that are not settings; the simulation sets them low, because its logs and topics are small."""

    document_partitions_max: int = PARTITIONS_MAX
    segment_bytes_max: int = sys.maxsize
    move_steps: MoveSteps = STEPS


class NodeEnvironment(NamedTuple):
    """The clock, timers, files and links of a node; `boot_id` changes when the machine restarts."""

    clock: Clock
    timers: Timers
    random: Random
    new_id: Callable[[], str]
    """A function that returns a new id for a group member at each call."""
    files: FileSystem
    open_files_max: int
    boot_id: str
    inspector: BatchInspector
    make_links: Callable[[MetadataImage, Callable[[], BrokerConfig]], Links]
    sizes: NodeSizes = NodeSizes()
    is_cached: Callable[[FileSlice], bool] = lambda _: True
    """A function that returns True if a slice of a file can be read without waiting for a disk."""
