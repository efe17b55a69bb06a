"""The lookup of a log's topic in the metadata."""

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition


class TopicLookup(NamedTuple):
    """The functions that find the topic of a log in the metadata.

    `assigned` returns this broker's partition for a topic id and a partition number, or None. `only_topic` returns the
    id of the topic that has the given name now. It returns None if there is no such topic, or if a deleted topic with
    this name may still have logs.
    """

    assigned: Callable[[UUID, int], TopicPartition | None] = lambda *_: None
    only_topic: Callable[[str], UUID | None] = lambda _: None


NO_TOPICS: Final = TopicLookup()
