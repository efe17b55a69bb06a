"""The decision on AlterPartition, by which a leader proposes a new ISR (KIP-497)."""

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
    """A leader's proposal of a new ISR.

    `isr` has for each member the broker epoch of the incarnation that was in sync (KIP-903), or
    UNKNOWN_BROKER_EPOCH if the leader has not heard from the member since it became leader. `leader_epoch` and
    `partition_epoch` are those of the partition state on which the proposal is based.
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
    """Return the partition with the proposed ISR, which may also complete a reassignment.

    The partition epoch rises even if the ISR does not change, so that no earlier proposal can take effect later. Raises
    ApiError if the proposal is based on another leader epoch (FENCED_LEADER_EPOCH) or partition epoch
    (INVALID_UPDATE_VERSION), lacks the leader or has a broker that is no replica (INVALID_REQUEST), or has a broker
    that may not be in the ISR (INELIGIBLE_REPLICA).
    """
    _check_epochs(state, change)
    if state.leader not in change.isr or not change.isr.keys() <= set(state.replicas):
        message = (
            f"The ISR {list(change.isr)} must contain the leader {state.leader}, "
            f"and no brokers except the replicas {list(state.replicas)}."
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
    """Return why a broker cannot be in an ISR, or None.

    A broker that is shutting down may stay in the ISR, because it may be the leader that sends the request. An ISR
    member with UNKNOWN_BROKER_EPOCH may stay, too: if the broker had restarted, the partition epoch would have risen,
    and the request would have been refused.
    """
    if registration is None or registration.fenced:
        return "is not alive"
    if is_member and broker_epoch == UNKNOWN_BROKER_EPOCH:
        return None
    if registration.broker_epoch != broker_epoch:
        return f"is registered with broker epoch {registration.broker_epoch}, not {broker_epoch}"
    if registration.is_shutting_down and not is_member:
        return "is shutting down"
    return None
