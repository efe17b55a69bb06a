"""The functions that restore the lost metadata of topics from the log ends that brokers have reported.

The reports show the logs of each broker, and where each log ends. The replicas whose logs have the latest leader epoch
and, among these logs, the highest end offset are in sync; a live one of these replicas becomes the leader. If the
configs of a topic are lost, no record expires or is compacted until an administrator sets configs.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.metadata.controller.decisions.internal_topics import automatic_topic
from barnabas_broker.metadata.documents import topic_part_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import reported_ends, stray_topics
from barnabas_broker.metadata.model import NO_LEADER, LogEnd, PartitionState, TopicDocument, TopicPartDocument
from barnabas_core.config.broker_config import BrokerConfig

KEEPS_ALL: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The configs of a restored topic whose own configs are lost; with them, no record expires or is compacted."""

Ends = Mapping[int, Mapping[int, LogEnd]]
"""The log ends of a topic's replicas, by partition and broker id."""


class Restored(NamedTuple):
    """The restored metadata of a topic, and the reported log ends of the partitions whose metadata was lost."""

    document: TopicDocument
    ends: Ends


class NotRestored(NamedTuple):
    """A topic that cannot be restored without an administrator's decision."""

    name: str
    topic_id: UUID
    why: str


def restored_topics(image: MetadataImage, config: BrokerConfig, *, accepts_loss: bool) -> list[Restored | NotRestored]:
    """Return the restored metadata of each topic that has logs but incomplete metadata, or why it is not restored.

    If `accepts_loss` is True, partitions without any log are restored as empty, and missing logs of other partitions
    are ignored.
    """
    held, strays = reported_ends(image), stray_topics(image)
    decided: list[Restored | NotRestored] = []
    for stray in strays:
        others = [each for each in strays if each.name == stray.name and each is not stray]
        if others or stray.name in image.topics:
            why = "another topic has the same name; delete the logs of one topic with `barnabas forget-topic TOPIC_ID`"
            decided.append(NotRestored(stray.name, stray.topic_id, why))
            continue
        document = _head(image, stray.name, stray.topic_id, config)
        known = dict(_known_partitions(document, image))
        decided.append(_restored(document, known, held.get(stray.topic_id, {}), image, accepts_loss=accepts_loss))
    for topic in image.topics.values():
        known = dict(enumerate(topic.partitions))
        ends = held.get(topic.topic_id, {})
        if any(number not in known for number in ends):
            decided.append(_restored(topic, known, ends, image, accepts_loss=accepts_loss))
    return decided


def _head(image: MetadataImage, name: str, topic_id: UUID, config: BrokerConfig) -> TopicDocument:
    """Return the metadata of the topic that the store still has, or new metadata without partitions."""
    head = image.incomplete.get(name)
    if head is not None and head.topic_id == topic_id:
        return head
    configs = {key: value for key, value in automatic_topic(name, config).configs.items() if value is not None}
    return TopicDocument(name, topic_id, (), configs or dict(KEEPS_ALL))


def _known_partitions(head: TopicDocument, image: MetadataImage) -> Iterator[tuple[int, PartitionState]]:
    yield from enumerate(head.partitions)
    for part in head.parts:
        found = image.stored(topic_part_key(head.name, part))
        if isinstance(found, TopicPartDocument) and found.topic_id == head.topic_id:
            yield from enumerate(found.partitions, part.first)


def _restored(
    topic: TopicDocument, known: Mapping[int, PartitionState], held: Ends, image: MetadataImage, *, accepts_loss: bool
) -> Restored | NotRestored:
    count = max([0, *(number + 1 for number in (*known, *held)), *(part.first + part.count for part in topic.parts)])
    ends = {number: held.get(number, {}) for number in range(count) if number not in known}
    why = _why_not(ends)
    if why is not None and not (accepts_loss and any(ends.values())):
        return NotRestored(topic.name, topic.topic_id, why)
    some = next(found for found in ends.values() if found)
    missing = {broker: LogEnd(0, -1, 0, 0) for broker in some}
    states = {number: _state(number, found or missing, image) for number, found in ends.items()}
    partitions = tuple(known[number] if number in known else states[number] for number in range(count))
    return Restored(msgspec.structs.replace(topic, partitions=partitions), ends)


def _why_not(ends: Ends) -> str | None:
    """Return why a topic cannot be restored yet, or None."""
    missing = [number for number, found in ends.items() if not found]
    most = max(map(len, ends.values()), default=0)
    fewer = [number for number, found in ends.items() if len(found) < most]
    way_on = "start the brokers that have the missing logs, or restore the topic without these logs with --accept-loss"
    if not any(ends.values()):
        return "no registered broker has a log of the topic: start the brokers that have logs of the topic"
    if missing:
        return f"no registered broker has a log of partition {missing[0]}: {way_on}"
    if fewer:
        return f"partition {fewer[0]} has logs on {len(ends[fewer[0]])} brokers, other partitions on {most}: {way_on}"
    return None


def _state(number: int, ends: Mapping[int, LogEnd], image: MetadataImage) -> PartitionState:
    """Return the state of a restored partition, with a leader epoch above the epochs of all logs of the partition.

    The partition number decides which replica comes first, so that preferred leaders are spread over the brokers.
    """
    brokers, first = sorted(ends), number % len(ends)
    replicas = (*brokers[first:], *brokers[:first])
    longest = max((end.epoch, end.offset) for end in ends.values())
    isr = tuple(each for each in replicas if (ends[each].epoch, ends[each].offset) == longest)
    leader = next((each for each in isr if each in image.live), NO_LEADER)
    epoch = longest[0] + 1
    return PartitionState(replicas, leader, epoch, isr, restored_epoch=epoch)
