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
        """Fetch a partition from its current leader in its current leader epoch, and no longer from another leader."""
        ...

    def go_on(self, partition: Partition) -> None:
        """Resume the fetches of a partition after a sync of its log; do nothing if this broker is not a follower."""
        ...

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition, if it is being fetched."""
        ...


class ReplicaEnvironment(NamedTuple):
    """The dependencies of the replica manager."""

    clock: Clock
    timers: Timers
    purgatory: Purgatory
    fetching: Fetching
    propose_isr: Callable[[IsrProposer], object]
    give_up: Callable[[Mapping[TopicPartition, int]], object]
    """Report to the controller in which leader epochs the logs of partitions failed, so that other brokers lead."""
    lost: Callable[[Mapping[TopicPartition, int]], object]
    """Report to the controller which logs lack committed records, with the leader epochs of their partitions."""
    ahead: Callable[[Mapping[TopicPartition, LogAhead]], object]
    """Tell the controller which partitions have a later leader epoch in their log than in the metadata."""
    is_awake: Callable[[], bool]
    """Return True unless this process was suspended after it last read the latest metadata."""
    turned_away: Callable[[], object]
    """Record that a request was refused now: its leader epoch is wrong, or another broker leads the partition."""
