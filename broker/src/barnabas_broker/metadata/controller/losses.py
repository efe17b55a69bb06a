"""The reports of partitions that have no leader because every replica lacks committed records."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas_broker.metadata.controller.decisions.elections import is_lost
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import NO_LOG, KnownEnds
from barnabas_broker.metadata.model import LogEnd, TopicDocument
from barnabas_core.fair_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition

LACKING_RECORDS: Final = "barnabas.partitions.lacking.records"
"""The read-only topic config that names the partitions that are offline because every replica lacks committed records.

The config shows these partitions to Kafka's tools. If the topic has none, the config is absent.
"""
NAMED_MAX: Final = 100
LINES_MAX: Final = 20

log = logging.getLogger(__name__)


class Lost(NamedTuple):
    """A partition that has lost records.

    `ends` has the reported log ends of the replicas; the offset NO_LOG stands for a missing log.
    """

    where: TopicPartition
    replicas: tuple[int, ...]
    ends: Mapping[int, LogEnd]

    @property
    def known_end(self) -> int:
        """The highest log end that any replica reported before the loss; NO_LOG if unknown."""
        return max((end.known for end in self.ends.values()), default=NO_LOG)

    @property
    def longest(self) -> int:
        """The log end that the partition will have if the loss is accepted now and all replicas are alive."""
        return max((end.offset for end in self.ends.values()), default=NO_LOG)

    def text(self) -> str:
        """Return a description of the loss."""
        known = (
            f"the last known log end is {self.known_end}"
            if self.known_end != NO_LOG
            else "the log end before the loss is unknown"
        )
        return ", ".join([known, *(_end_text(replica, self.ends.get(replica)) for replica in self.replicas)])


def _end_text(broker_id: int, end: LogEnd | None) -> str:
    if end is None:
        return f"broker {broker_id} has not reported its log end"
    return (
        f"broker {broker_id} has no log"
        if end.offset == NO_LOG
        else f"the log of broker {broker_id} ends at {end.offset}"
    )


def lost_in(topic: TopicDocument, known: KnownEnds) -> list[Lost]:
    """Return the partitions of a topic that only an unclean election can bring back online."""
    return [
        Lost(
            TopicPartition(topic.name, number),
            state.replicas,
            known.of_replicas(topic.topic_id, number, state.replicas),
        )
        for number, state in enumerate(topic.partitions)
        if is_lost(state)
    ]


def config_value(lost: Sequence[Lost]) -> str:
    """Return the value of LACKING_RECORDS, such as `0: the last known log end is 9308, broker 1 has no log; 3: ...`."""
    named = [f"{each.where.partition}: {each.text()}" for each in lost[:NAMED_MAX]]
    return "; ".join(named + [f"and {len(lost) - NAMED_MAX} more partitions"] * (len(lost) > NAMED_MAX))


class LossReports:
    """The logging of partitions that have lost records; each loss is logged once."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._told: dict[str, frozenset[int]] = {}

    async def look(self, names: Iterable[str], turn: FairTurn) -> None:
        """Log partitions of the given topics that have lost records, unless the loss was logged before."""
        known = KnownEnds(self._image)
        async for name in turn.over(names):
            topic = self._image.topics.get(name)
            lost = lost_in(topic, known) if topic is not None else []
            before, now = self._told.pop(name, frozenset()), frozenset(each.where.partition for each in lost)
            if now:
                self._told[name] = now
            news = [each for each in lost if each.where.partition not in before]
            for each in islice(news, LINES_MAX):
                log.error(
                    "%s is offline because every replica lacks committed records: %s; %s",
                    each.where,
                    each.text(),
                    _way_on(each),
                )
            if len(news) > LINES_MAX:
                log.error(
                    "%d more partitions of %s are offline because every replica lacks committed records",
                    len(news) - LINES_MAX,
                    name,
                )


def _way_on(lost: Lost) -> str:
    topic, partition = lost.where
    return f"`barnabas accept-loss --topic {topic} --partition {partition}` elects the replica with the longest log"
