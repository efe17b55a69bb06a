"""The dependencies of a partition on its broker, and the small types it uses."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.isr_changes import IsrProposer
from barnabas_broker.replication.leader_state import IsEligible
from barnabas_broker.storage.logs.log import Log
from barnabas_core.clock import Clock


class FetchPosition(NamedTuple):
    """The position that a follower's next Fetch names for a partition."""

    offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


class AppendWatcher(Protocol):
    """The observer of a partition's changes, a follower's fetch session; its calls are cheap."""

    def changed(self) -> None:
        """Note that records were appended or leadership has changed."""
        ...

    def high_watermark_advanced(self) -> None:
        """Note that the high watermark or log start offset advanced, which the next answer must have."""
        ...


def is_ahead(log: Log, state: PartitionState) -> bool:
    """Return True if a log has a later epoch than the metadata, as after an older copy of the metadata was restored."""
    return log.epochs.latest_epoch > state.leader_epoch >= 0


class PartitionEnvironment(NamedTuple):
    """The dependencies that all partitions of a broker share. `lag_ms_max` returns `replica.lag.time.max.ms`."""

    broker_id: int
    clock: Clock
    is_eligible: IsEligible
    lag_ms_max: Callable[[], int]
    propose_isr: Callable[[IsrProposer], object]
    own_broker_epoch: Callable[[], int]
    turned_away: Callable[[], object]
    """Note a request for a partition that is led elsewhere, or in another epoch than the client's."""
