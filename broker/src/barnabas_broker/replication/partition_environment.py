"""The objects and functions that partitions get from their broker, and the fetch position of a follower."""

from collections.abc import Callable
from typing import NamedTuple

from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.isr_changes import IsrProposer
from barnabas_broker.replication.leader_replica import IsEligible
from barnabas_broker.storage.logs.log import Log
from barnabas_core.clock import Clock


class FetchPosition(NamedTuple):
    """The position in a partition that a follower sends in its next Fetch request."""

    offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


def is_ahead(log: Log, state: PartitionState) -> bool:
    """True if a log has a later leader epoch than the metadata. The metadata may then be a restored older copy."""
    return log.epochs.latest_epoch > state.leader_epoch >= 0


class PartitionEnvironment(NamedTuple):
    """The objects and functions that all partitions of a broker share.

    The function `lag_ms_max` returns the value of `replica.lag.time.max.ms`.
    """

    broker_id: int
    clock: Clock
    is_eligible: IsEligible
    lag_ms_max: Callable[[], int]
    propose_isr: Callable[[IsrProposer], object]
    own_broker_epoch: Callable[[], int]
    turned_away: Callable[[], object]
    """Record that a request was refused now: its leader epoch is wrong, or another broker leads the partition."""
