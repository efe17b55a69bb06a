"""What logs have to know of topics."""

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition


class TopicLookup(NamedTuple):
    """What the metadata say of topics, as far as it tells which log is whose.

    `assigned` says which partition of this broker a topic id and a number are, None where they are none; `only_topic`
    the id of the topic of a name, None where an earlier one may have had that name.
    """

    assigned: Callable[[UUID, int], TopicPartition | None] = lambda *_: None
    only_topic: Callable[[str], UUID | None] = lambda _: None


NO_TOPICS: Final = TopicLookup()
