"""The dependencies of the replica manager on its broker."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from barnabas_broker.metadata.controller.decisions.overtaken import LogAhead
from barnabas_broker.replication.isr_changes import IsrProposer
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_core.clock import Clock, Timers
from barnabas_core.topic_partition import TopicPartition


class Fetching(Protocol):
    """The fetchers of the followers on this broker."""

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its current leader, with its current leader epoch."""
        ...

    def go_on(self, partition: Partition) -> None:
        """Continue to fetch a followed partition after a sync of its log."""
        ...

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition, if it is fetched."""
        ...


class ReplicaEnvironment(NamedTuple):
    """The dependencies. The callables that report to the metadata end in a compare-and-set."""

    clock: Clock
    timers: Timers
    purgatory: Purgatory
    fetching: Fetching
    propose_isr: Callable[[IsrProposer], object]
    give_up: Callable[[Mapping[TopicPartition, int]], object]
    """Report partitions whose logs failed here in these leader epochs, to continue on other brokers."""
    lost: Callable[[Mapping[TopicPartition, int]], object]
    """Report logs here that lack committed records, as found in these leader epochs."""
    ahead: Callable[[Mapping[TopicPartition, LogAhead]], object]
    """Report logs here that have later leader epochs than the metadata."""
    is_awake: Callable[[], bool]
    """Return False while this broker may not know that others lead."""
    turned_away: Callable[[], object]
    """Note a request that was refused because another broker leads the partition."""
