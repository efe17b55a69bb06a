"""A leader's proposal of another ISR (Kafka's AlterPartition, KIP-497): taken, or refused with Kafka's errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.controller.decisions.state_changes import revised
from barnabas_broker.metadata.model import BrokerRegistration, PartitionState, TopicDocument
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

UNKNOWN_BROKER_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class IsrChange:
    """`isr` gives for each member the broker epoch of the incarnation that was seen to be in sync (KIP-903).

    A member that the leader has not heard of yet since it leads may have UNKNOWN_BROKER_EPOCH. The other epochs are
    those of the partition's state that the proposal was made on.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]


def check_topic(topic: TopicDocument, change: IsrChange) -> None:
    """Raise ApiError if the proposal is for an earlier topic of the same name."""
    if topic.topic_id != change.topic_id:
        message = f"Topic {topic.name} has the id {topic.topic_id}, not {change.topic_id}."
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, message)


def decide_isr_change(state: PartitionState, change: IsrChange, rules: Rules) -> PartitionState:
    """The partition with the proposed ISR, its reassignment completed where that completes it.

    The partition epoch rises even where the ISR is already so: then no earlier proposal, whose outcome the leader does
    not know, can come true any more. Raises ApiError: FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION,
    INVALID_REQUEST, INELIGIBLE_REPLICA.
    """
    _check_epochs(state, change)
    if state.leader not in change.isr or not change.isr.keys() <= set(state.replicas):
        message = (
            f"The ISR {list(change.isr)} must have the leader {state.leader} in it, "
            f"and nobody but the replicas {list(state.replicas)}."
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    for broker, broker_epoch in change.isr.items():
        complaint = _complaint(rules.brokers.get(broker), broker_epoch, broker in state.isr)
        if complaint is not None:
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"Broker {broker} {complaint}.")
    isr = tuple(replica for replica in state.replicas if replica in change.isr)
    after = revised(state, msgspec.structs.replace(state, isr=isr), rules)
    return after if after is not state else msgspec.structs.replace(state, partition_epoch=state.partition_epoch + 1)


def _check_epochs(state: PartitionState, change: IsrChange) -> None:
    if change.leader_epoch != state.leader_epoch:
        message = f"The leader epoch is {state.leader_epoch}, not {change.leader_epoch}."
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, message)
    if change.partition_epoch != state.partition_epoch:
        message = f"The partition epoch is {state.partition_epoch}, not {change.partition_epoch}."
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _complaint(registration: BrokerRegistration | None, broker_epoch: int, is_member: bool) -> str | None:
    """Return why a broker cannot be in an ISR.

    A member of it that is shutting down may stay: it can be the leader itself. One of an unknown incarnation, too: if
    another one had begun, the partition epoch would have risen.
    """
    if registration is None or registration.fenced:
        return "is not alive"
    if is_member and broker_epoch == UNKNOWN_BROKER_EPOCH:
        return None
    if registration.broker_epoch != broker_epoch:
        return f"lives in broker epoch {registration.broker_epoch}; in sync was that of epoch {broker_epoch}"
    if registration.is_shutting_down and not is_member:
        return "is shutting down"
    return None
