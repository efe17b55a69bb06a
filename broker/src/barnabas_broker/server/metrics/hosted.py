"""The totals over all partitions of this broker, computed in slices, because there may be thousands of partitions."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, Sample
from barnabas_core.fair_turns import COUNTED_PARTITIONS, in_turns


@dataclass(slots=True)
class TopicTotals:
    """The messages and bytes of one topic, summed over its partitions on this broker."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(slots=True)
class Totals:
    """The counts of partitions, replicated bytes and ISR changes, summed over all partitions of this broker."""

    partitions: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    offline: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    topics: defaultdict[str, TopicTotals] = field(default_factory=lambda: defaultdict(TopicTotals))

    def add(self, partition: Partition) -> None:
        """Count a partition, and add its bytes, messages and ISR changes to the totals."""
        self.partitions += 1
        self.offline += partition.failure is not None
        self.replication_bytes_in += partition.follower.replication_bytes_in
        self.replication_bytes_out += partition.replication_bytes_out
        self.isr_shrinks += partition.isr_shrinks
        self.isr_expands += partition.isr_expands
        of_topic = self.topics[partition.topic_partition.topic]
        of_topic.messages_in += partition.messages_in
        of_topic.bytes_in += partition.bytes_in
        of_topic.bytes_out += partition.bytes_out
        if partition.leader is not None:
            self._add_led(partition)

    def _add_led(self, partition: Partition) -> None:
        self.led += 1
        self.under_replicated += is_under_replicated(partition)
        self.under_min_isr += is_under_min_isr(partition)
        self.at_min_isr += is_at_min_isr(partition)


class Hosted(NamedTuple):
    """A copy of this broker's partitions for one scrape, because partitions change while the page is rendered."""

    partitions: Sequence[Partition]
    totals: Totals


async def look_at_all(partitions: Iterable[Partition]) -> Hosted:
    """Return a copy of the list of partitions, and the totals over all of them.

    The totals are computed in slices, between which the event loop runs other work.
    """
    hosted = Hosted(list(partitions), Totals())
    async for partition in in_turns(hosted.partitions, COUNTED_PARTITIONS):
        hosted.totals.add(partition)
    return hosted


def by_partition(hosted: Hosted, name: str, help_text: str, value: Callable[[Partition], int | None]) -> Family:
    """Return a gauge with a sample for each partition for which `value` is not None."""

    def samples() -> Iterator[Sample | None]:
        for each in hosted.partitions:
            number, (topic, partition) = value(each), each.topic_partition
            yield None if number is None else Sample(f'topic="{topic}",partition="{partition}"', int(number))

    return Family(name, "gauge", help_text, samples)


def is_under_replicated(partition: Partition) -> bool:
    """True if a replica is not in the ISR."""
    return partition.isr_size < len(partition.state.replicas)


def is_under_min_isr(partition: Partition) -> bool:
    """True if the ISR is smaller than min.insync.replicas, so that produce requests with acks=all are refused."""
    return partition.isr_size < partition.isr_size_min


def is_at_min_isr(partition: Partition) -> bool:
    """True if acks=all would be refused with one replica fewer in the ISR."""
    return partition.isr_size == partition.isr_size_min
