"""The fetchers of this broker: a `Fetcher` for each leader of partitions that this broker follows."""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from barnabas_broker.replication.fetch_session import FetchEnvironment
from barnabas_broker.replication.fetcher import Fetcher
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.throttle import Throttle
from barnabas_core.topic_partition import TopicPartition


class FetchStatus(NamedTuple):
    """The status of a fetched partition, with its lag in offsets, and whether the last fetch failed."""

    topic_partition: TopicPartition
    leader_id: int
    lag: int
    is_failing: bool


class Fetchers:
    """The fetchers of this broker, one for each leader."""

    def __init__(self, environment: FetchEnvironment) -> None:
        self._environment = environment
        self.throttle = Throttle(environment.clock, lambda: environment.config().follower_replication_throttled_rate)
        self._fetchers: dict[int, Fetcher] = {}
        self._fetched_from: dict[tuple[UUID, int], Fetcher] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its current leader in its current leader epoch, and no longer from another leader."""
        key = partition.topic_id, partition.topic_partition.partition
        leader_id = partition.state.leader
        previous = self._fetched_from.get(key)
        if previous is not None and previous.leader_id != leader_id:
            previous.unfollow(partition)
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(leader_id, self._environment, self.throttle)
        self._fetched_from[key] = fetcher
        fetcher.follow(partition)

    def go_on(self, partition: Partition) -> None:
        """Resume the fetches of a partition after a sync of its log; do nothing if this broker is not a follower."""
        fetcher = self._fetched_from.get((partition.topic_id, partition.topic_partition.partition))
        if fetcher is not None:
            fetcher.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition, if it is being fetched."""
        fetcher = self._fetched_from.pop((partition.topic_id, partition.topic_partition.partition), None)
        if fetcher is not None:
            fetcher.unfollow(partition)

    def close(self) -> None:
        """Stop fetching all partitions and close the connections."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._fetched_from.clear()

    def status(self) -> Iterator[FetchStatus]:
        """Yield the status of every fetched partition; partitions may change during the iteration."""
        for fetcher in list(self._fetchers.values()):
            for each in list(fetcher.session.followed):
                yield FetchStatus(
                    each.partition.topic_partition, fetcher.leader_id, max(each.lag, 0), each.failures > 0
                )

    @property
    def requests(self) -> int:
        """The number of fetch requests that the current fetchers have sent."""
        return sum(fetcher.requests for fetcher in self._fetchers.values())

    @property
    def bytes_in(self) -> int:
        """The number of bytes that the current fetchers have received."""
        return sum(fetcher.bytes_in for fetcher in self._fetchers.values())
