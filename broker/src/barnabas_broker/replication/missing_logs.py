"""Partitions that are to be here and have no log that can be used."""

from dataclasses import dataclass, field

from barnabas_core.topic_partition import TopicPartition


@dataclass(slots=True)
class MissingLogs:
    """By name, so whoever goes is to be forgotten: the next of its name has nothing to do with these logs."""

    uncreated: set[TopicPartition] = field(default_factory=set)
    """What no directory could take; tried again until one can."""
    unloaded: set[TopicPartition] = field(default_factory=set)
    """Their logs may lie in a directory that was offline at the start, or are stray logs."""

    def forget(self, topic_partition: TopicPartition) -> None:
        """It is not to be here any more."""
        self.uncreated.discard(topic_partition)
        self.unloaded.discard(topic_partition)
