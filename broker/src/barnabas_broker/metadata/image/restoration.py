"""The merge of topics in an older, restored copy of the metadata with the newer state that a broker knows.

Every change of a partition raises its partition epoch, so of two states the one with the higher partition epoch is
newer. Brokers that kept running know every change.
"""

import msgspec

from barnabas_broker.metadata.model import PartitionState, TopicDocument


def with_newer_partitions(known: TopicDocument, found: TopicDocument) -> TopicDocument:
    """Return `found`, with the partitions and the configs of `known` where those of `known` are newer.

    Both arguments are states of the same topic. Return `found` itself if nothing in `known` is newer. If a newer
    partition in `known` has a lower leader epoch than the same partition in `found`, the result has a leader epoch
    above both.
    """
    if not is_older(known, found):
        return found
    pairs = zip(known.partitions, found.partitions, strict=False)
    partitions = tuple(_newer(before, now) for before, now in pairs)
    longest = max(known.partitions, found.partitions, key=len)
    return _with_newer_configs(
        known, msgspec.structs.replace(found, partitions=partitions + longest[len(partitions) :])
    )


def _with_newer_configs(known: TopicDocument, found: TopicDocument) -> TopicDocument:
    if known.configs_epoch <= found.configs_epoch:
        return found
    return msgspec.structs.replace(found, configs=known.configs, configs_epoch=known.configs_epoch)


def is_older(known: TopicDocument, found: TopicDocument) -> bool:
    """True if the state of a topic in the store (`found`) lacks a change that this broker knows (`known`)."""
    if len(found.partitions) < len(known.partitions) or found.configs_epoch < known.configs_epoch:
        return True
    pairs = zip(known.partitions, found.partitions, strict=False)
    return any(now.partition_epoch < before.partition_epoch for before, now in pairs)


def _newer(known: PartitionState, found: PartitionState) -> PartitionState:
    if found.partition_epoch >= known.partition_epoch:
        return found
    after = known
    if found.leader_epoch > after.leader_epoch:
        after = msgspec.structs.replace(after, leader_epoch=found.leader_epoch + 1)
    if found.partition_epoch >= after.partition_epoch:
        after = msgspec.structs.replace(after, partition_epoch=found.partition_epoch + 1)
    return after
