"""The environment of a node: `app.broker` fills it with a real machine, the simulation with its own."""

import sys
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.topic_layout import PARTITIONS_MAX
from barnabas_broker.replication.links import Links
from barnabas_broker.replication.log_mover import STEPS, MoveSteps
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.inspection.inspector import BatchInspector
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig


class NodeSizes(NamedTuple):
    """Bounds that are no settings: the logs and topics of a simulation are small, and so are its bounds."""

    document_partitions_max: int = PARTITIONS_MAX
    segment_bytes_max: int = sys.maxsize
    move_steps: MoveSteps = STEPS


class NodeEnvironment(NamedTuple):
    """The environment; `boot_id` is another one whenever the machine has restarted."""

    clock: Clock
    timers: Timers
    random: Random
    new_id: Callable[[], str]
    """The function that returns another id each time, for members of groups."""
    files: FileSystem
    open_files_max: int
    boot_id: str
    inspector: BatchInspector
    make_links: Callable[[MetadataImage, Callable[[], BrokerConfig]], Links]
    sizes: NodeSizes = NodeSizes()
