"""Topics whose documents are older than the brokers' state, because an older copy of the metadata was restored.

Every change of a partition raises its partition epoch, so of two states the one with the higher epoch is newer. Brokers
that ran on have seen every change.
"""

import msgspec

from barnabas_broker.metadata.model import PartitionState, TopicDocument


def with_newer_partitions(known: TopicDocument, found: TopicDocument) -> TopicDocument:
    """`found`, as it is where it is not older than `known`, else with the newer state of each partition.

    Both are of the same topic. The leader epoch is one that only the newer state's leader can have begun.
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
    """True if `found` lacks a change that `known` has."""
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
