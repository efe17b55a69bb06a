"""Topics whose documents are older than what brokers know: somebody has put an older copy of the metadata back.

Every change of a partition raises its partition epoch, so of two states the one with the higher epoch is newer. Brokers
that ran on have seen every change. One that starts knows what it remembered, which may not be the last: therefore after
that nobody leads a partition before all its replicas have compared.
"""

import msgspec

from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument


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
    """Whether `found` lacks a change that `known` has."""
    if len(found.partitions) < len(known.partitions) or found.configs_epoch < known.configs_epoch:
        return True
    pairs = zip(known.partitions, found.partitions, strict=False)
    return any(_epoch_beside(before, now) < before.partition_epoch for before, now in pairs)


def _epoch_beside(known: PartitionState, found: PartitionState) -> int:
    """One that started and remembered less than who ran on has raised the epoch all the same."""
    return found.restored_epoch if found.unconfirmed and not known.unconfirmed else found.partition_epoch


def _newer(known: PartitionState, found: PartitionState) -> PartitionState:
    if _epoch_beside(known, found) >= known.partition_epoch:
        return found
    after = known
    if found.leader_epoch > after.leader_epoch:
        after = msgspec.structs.replace(after, leader_epoch=found.leader_epoch + 1)
    if found.partition_epoch >= after.partition_epoch:
        after = msgspec.structs.replace(after, partition_epoch=found.partition_epoch + 1)
    return after


def compared(remembered: TopicDocument, found: TopicDocument, broker: int) -> TopicDocument:
    """`found` after `broker`, which starts, has compared it with what it remembers; as it is where it is not older."""
    pairs = list(zip(remembered.partitions, found.partitions, strict=False))
    partitions = [_compared(before, now, broker) for before, now in pairs]
    added = [_unled(state, state, broker) for state in remembered.partitions[len(pairs) :]]
    if not added and all(state is now for state, (_, now) in zip(partitions, pairs, strict=True)):
        return _with_newer_configs(remembered, found)
    rest = found.partitions[len(pairs) :]
    return _with_newer_configs(remembered, msgspec.structs.replace(found, partitions=(*partitions, *added, *rest)))


def unled(remembered: TopicDocument, broker: int) -> TopicDocument:
    """A topic that the store has no more, as `broker`, which starts, remembers it."""
    states = tuple(_unled(state, state, broker) for state in remembered.partitions)
    return msgspec.structs.replace(remembered, partitions=states)


def _compared(remembered: PartitionState, found: PartitionState, broker: int) -> PartitionState:
    """While others compare, too, epochs rise; then the state that was remembered at the highest epoch counts."""
    return found if _led_epoch(remembered) <= _led_epoch(found) else _unled(remembered, found, broker)


def _led_epoch(state: PartitionState) -> int:
    """Of the last state in which somebody could lead: nothing is committed while brokers compare."""
    return state.restored_epoch if state.unconfirmed else state.partition_epoch


def _unled(remembered: PartitionState, found: PartitionState, broker: int) -> PartitionState:
    left = found.unconfirmed or tuple(dict.fromkeys((*remembered.replicas, *found.replicas)))
    unconfirmed = tuple(replica for replica in left if replica != broker)
    if not unconfirmed and found is remembered:
        return remembered  # Nobody else can know anything.
    last_known = remembered.last_known_leader if remembered.leader == NO_LEADER else remembered.leader
    return msgspec.structs.replace(
        remembered,
        leader=NO_LEADER,
        leader_epoch=max(remembered.leader_epoch, found.leader_epoch) + 1,
        partition_epoch=max(remembered.partition_epoch, found.partition_epoch) + 1,
        last_known_leader=last_known,
        unconfirmed=unconfirmed,
        restored_epoch=_led_epoch(remembered) if unconfirmed else 0,
    )


def confirmed(topic: TopicDocument, broker: int) -> TopicDocument:
    """`topic` once `broker` has compared it; as it is where nobody waits for that."""
    if not any(broker in state.unconfirmed for state in topic.partitions):
        return topic
    return msgspec.structs.replace(topic, partitions=tuple(_confirmed(state, broker) for state in topic.partitions))


def _confirmed(state: PartitionState, broker: int) -> PartitionState:
    if broker not in state.unconfirmed:
        return state
    left = tuple(replica for replica in state.unconfirmed if replica != broker)
    return msgspec.structs.replace(
        state,
        unconfirmed=left,
        restored_epoch=state.restored_epoch if left else 0,
        partition_epoch=state.partition_epoch + 1,
    )
