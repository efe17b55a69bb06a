"""What the replica manager is given of its broker."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from barnabas_broker.metadata.controller.decisions.overtaken import LogAhead
from barnabas_broker.replication.isr_changes import IsrProposer
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_core.clock import Clock, Timers
from barnabas_core.topic_partition import TopicPartition


class Fetching(Protocol):
    """What fetches for the followers here."""

    def follow(self, partition: Partition) -> None:
        """Fetch it from the leader that it has now, by its leader epoch of now."""
        ...

    def go_on(self, partition: Partition) -> None:
        """Fetch on, if it is fetched: its log had to be synced first."""
        ...

    def unfollow(self, partition: Partition) -> None:
        """Fetch it no more. Harmless when it was not fetched."""
        ...


class ReplicaEnvironment(NamedTuple):
    """What the replica manager works with. Those callables that tell something end in a compare-and-set."""

    clock: Clock
    timers: Timers
    purgatory: Purgatory
    fetching: Fetching
    propose_isr: Callable[[IsrProposer], object]
    give_up: Callable[[Mapping[TopicPartition, int]], object]
    """These are to go on without this broker: their logs failed here, in these leader epochs."""
    lost: Callable[[Mapping[TopicPartition, int]], object]
    """Logs here lack records that were committed, as was found in these leader epochs."""
    ahead: Callable[[Mapping[TopicPartition, LogAhead]], object]
    """Logs here have later leader epochs than the metadata."""
    is_awake: Callable[[], bool]
    """False while this broker may not know that others lead by now."""
    turned_away: Callable[[], object]
    """See `PartitionEnvironment`."""
