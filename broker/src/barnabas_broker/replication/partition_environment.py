"""What a partition is given of its broker, and the small types it speaks in."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.isr_changes import IsrProposer
from barnabas_broker.replication.leader_state import IsEligible
from barnabas_broker.storage.logs.log import Log
from barnabas_core.clock import Clock


class FetchPosition(NamedTuple):
    """Where a follower goes on: what its next Fetch says of this partition."""

    offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


class AppendWatcher(Protocol):
    """Somebody with a cheap look at one partition after each change: a follower's fetch session."""

    def changed(self) -> None:
        """Records were appended, or leadership has changed."""
        ...

    def high_watermark_advanced(self) -> None:
        """Worth telling when there is an answer anyway."""
        ...


def is_ahead(log: Log, state: PartitionState) -> bool:
    """Whether a log has a later epoch than the metadata, of which somebody must have restored an older copy."""
    return log.epochs.latest_epoch > state.leader_epoch >= 0


class PartitionEnvironment(NamedTuple):
    """What all partitions of a broker share. `lag_ms_max` is `replica.lag.time.max.ms` as it is now."""

    broker_id: int
    clock: Clock
    is_eligible: IsEligible
    lag_ms_max: Callable[[], int]
    propose_isr: Callable[[IsrProposer], object]
    own_broker_epoch: Callable[[], int]
    turned_away: Callable[[], object]
    """Hears of each request for a partition that is led elsewhere, or in another epoch than the client knows."""
