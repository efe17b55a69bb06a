"""The stored delivery state of a share-partition: a partition of a topic, as one share group consumes it."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

UNKNOWN_OFFSET: Final = -1
"""The start offset of a share-partition whose leader has not yet chosen one by `share.auto.offset.reset`."""
UNKNOWN_COUNT: Final = -1
"""The delivery complete count that a writer does not know."""


class DeliveryState(IntEnum):
    """The delivery states of a record that are stored; the state Acquired (1) never is."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """A range of offsets, both ends included, with one delivery state and delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class InitializeEntry(NamedTuple):
    """The state to begin with: the group epoch as state epoch, and a start offset, which may be UNKNOWN_OFFSET."""

    partition: TopicIdPartition
    state_epoch: int
    start_offset: int


class ReadEntry(NamedTuple):
    """A share-partition to read; a leader epoch above the stored one is stored, and fences earlier leaders."""

    partition: TopicIdPartition
    leader_epoch: int


class WriteEntry(NamedTuple):
    """The changed batches of a share-partition; a start offset of UNKNOWN_OFFSET leaves the stored one."""

    partition: TopicIdPartition
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    """The number of offsets from the start offset on that are Acknowledged or Archived."""
    batches: Sequence[StateBatch]


class ShareOutcome(NamedTuple):
    """The answer for one share-partition: an error code, and the state if the request reads it.

    A read answers the state epoch, the start offset and the batches; a summary all but the batches.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNKNOWN_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT
    batches: Sequence[StateBatch] = ()
