"""The questions that logs have about topics."""

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition


class TopicLookup(NamedTuple):
    """The part of the metadata that maps logs to topics.

    `assigned` gives the partition of this broker for a topic id and a number, or None. `only_topic` gives the id of the
    topic of a name, or None if an earlier topic may have had that name.
    """

    assigned: Callable[[UUID, int], TopicPartition | None] = lambda *_: None
    only_topic: Callable[[str], UUID | None] = lambda _: None


NO_TOPICS: Final = TopicLookup()
