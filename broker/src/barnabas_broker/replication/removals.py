"""Replicas that are not on this broker any more: nobody finds them from now on, and their logs go some a turn.

A disk renames a directory in 20 µs or in many ms, and a topic has thousands. What is not done when the broker stops,
its next start finds: logs that have a tombstone, or that the metadata has elsewhere.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from barnabas_broker.replication.partition import Partition
from barnabas_core.clock import Clock, Timers
from barnabas_core.fair_turns import FairRounds
from barnabas_core.topic_partition import TopicPartition


class Removal(NamedTuple):
    """A replica to remove; `partition` is None for a log that nobody has taken up."""

    topic_partition: TopicPartition
    topic_id: UUID
    partition: Partition | None


class Removals:
    """`remove` removes one."""

    def __init__(self, clock: Clock, timers: Timers, remove: Callable[[Removal], object]) -> None:
        self._remove = remove
        self._waiting: OrderedDict[TopicPartition, Removal] = OrderedDict()
        self._rounds = FairRounds(clock, timers, lambda: list(self._waiting), self.finish)

    def add(self, removal: Removal) -> None:
        """To be removed. One that waits already has the log: nobody takes its place before `finish`."""
        self._waiting.setdefault(removal.topic_partition, removal)

    def begin(self) -> None:
        """The first of them go now, unless some go already in each turn."""
        if self._waiting:
            self._rounds.begin()

    def finish(self, topic_partition: TopicPartition) -> None:
        """Remove it now, if it waits: something else of this name is to be made."""
        removal = self._waiting.pop(topic_partition, None)
        if removal is not None:
            self._remove(removal)

    def stop(self) -> None:
        """Nothing is removed any more; who waits for these replicas hears that they lead no more."""
        for removal in self._waiting.values():
            if removal.partition is not None:
                removal.partition.resign()
        self._waiting.clear()
        self._rounds.stop()
