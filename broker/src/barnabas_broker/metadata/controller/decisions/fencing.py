"""The state of a partition after brokers die, restart or shut down.

The reassignment of replicas while a partition is in use (KIP-455). Added replicas fetch as followers; removed
replicas stay until all target replicas are in sync. Then `revised` completes the reassignment.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import Rules, choose_leader, led_by
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration, PartitionState, TopicDocument
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

PARTITIONS_NAMED_MAX: Final = 3


def check_unregistration(
    broker_id: int, registration: BrokerRegistration | None, topics: Iterable[TopicDocument]
) -> None:
    """Raise ApiError if the broker is not registered, is not fenced, or has replicas."""
    if registration is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered.")
    if not registration.fenced:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"broker {broker_id} is alive; only a stopped broker can be unregistered"
        )
    held = (
        f"{topic.name}-{number}"
        for topic in topics
        for number, state in enumerate(topic.partitions)
        if broker_id in state.replicas
    )
    named = ", ".join(islice(held, PARTITIONS_NAMED_MAX))
    if named:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} has replicas ({named}); reassign them first")


def revised(before: PartitionState, wanted: PartitionState, rules: Rules, lost: Container[int] = ()) -> PartitionState:
    """Return the state after a change from `before` to `wanted`, with a new ELR and leader where needed.

    A reassignment ends once all its targets are in sync. If the ISR has too few members for min.insync.replicas,
    replicas that leave the ISR become eligible leader replicas, except replicas in `lost`, which may lack records.
    Members of the ISR are removed from `lacking`. The partition epoch rises with every change, and the leader epoch
    with every election. If nothing changes, `before` itself is returned.
    """
    after = _completed(wanted)
    elr = _eligible_leader_replicas(before, after, rules, lost)
    lacking = tuple(each for each in after.lacking if each in after.replicas and each not in after.isr)
    if elr != after.elr or lacking != after.lacking:
        after = msgspec.structs.replace(after, elr=elr, lacking=lacking)
    leader = choose_leader(after, rules)
    if leader != before.leader or (leader != NO_LEADER and leader not in after.isr):
        after = led_by(after, leader, rules)
    if after == before:
        return before
    return msgspec.structs.replace(after, partition_epoch=before.partition_epoch + 1)


def _completed(state: PartitionState) -> PartitionState:
    """Complete a reassignment if all target replicas are in sync: drop the removing replicas (KIP-455)."""
    if not state.adding_replicas and not state.removing_replicas:
        return state
    targets = [replica for replica in state.replicas if replica not in state.removing_replicas]
    if not set(targets) <= set(state.isr):
        return state
    return msgspec.structs.replace(
        with_replicas(state, targets), isr=tuple(targets), adding_replicas=(), removing_replicas=()
    )


def with_replicas(state: PartitionState, replicas: list[int]) -> PartitionState:
    """Return `state` with the replicas in `replicas`; each replica that stays keeps its log directory."""
    log_dirs: tuple[str, ...] = ()
    if state.log_dirs:
        given = dict(zip(state.replicas, state.log_dirs, strict=True))
        log_dirs = tuple(given.get(replica, "") for replica in replicas)
    return msgspec.structs.replace(state, replicas=tuple(replicas), log_dirs=log_dirs)


def _eligible_leader_replicas(
    before: PartitionState, after: PartitionState, rules: Rules, lost: Container[int]
) -> tuple[int, ...]:
    """Return the replicas outside the ISR that still have every committed record (KIP-966).

    While the ISR is below min.insync.replicas, the high watermark does not advance, so a replica that leaves misses
    no commit.
    """
    if rules.suffices(after.isr, after.replicas):
        return ()
    return tuple(
        replica
        for replica in after.replicas
        if (replica in before.elr or replica in before.isr) and replica not in after.isr and replica not in lost
    )


def remove_fenced(state: PartitionState, rules: Rules) -> PartitionState:
    """Return the partition without fenced brokers in its ISR; return `state` itself if nothing changes.

    Brokers that are shutting down leave the ISR as well, as long as another member remains. If no eligible replica is
    alive, the partition has no leader until an eligible replica is alive again.
    """
    if state.leader in state.isr and not state.elr and all(map(rules.may_lead, state.isr)):
        return state
    living = tuple(broker for broker in state.isr if rules.is_alive(broker))
    staying = tuple(broker for broker in living if rules.may_lead(broker))
    return revised(state, msgspec.structs.replace(state, isr=staying or living), rules)


def remove_dead(state: PartitionState, rules: Rules) -> PartitionState:
    """Return the result of `remove_fenced`, unless the leader and all ISR members are alive and the ELR is empty.

    In that case, return `state` unchanged, even if a broker is in a controlled shutdown: the broker moves its
    partitions itself, and a write by the controller could only conflict with the broker's writes.
    """
    if state.leader in state.isr and not state.elr and all(map(rules.is_alive, state.isr)):
        return state
    return remove_fenced(state, rules)


def begin_incarnation(
    state: PartitionState, broker: int, lacks_records: bool, rules: Rules, *, is_past: bool = False
) -> PartitionState:
    """Return the partition with a restarted broker as a follower outside the ISR, before the broker is unfenced.

    The partition epoch rises, so that changes from before the restart, such as adding the broker to the ISR, fail.
    `is_past` is True if these changes fail anyway, because the partition changed after the broker was fenced. The
    partition then stays unchanged, unless the broker is the leader or in the ISR. A partition whose only replica is the
    broker stays unchanged, too. If `lacks_records` is True, the broker's log lacks records, so the broker cannot become
    the leader (`lose`).
    """
    if lacks_records:
        return lose(state, broker, rules)
    if state.replicas == (broker,) or (is_past and broker not in state.isr and broker != state.leader):
        return state
    isr = tuple(replica for replica in state.isr if replica != broker and rules.is_alive(replica))
    after = revised(state, msgspec.structs.replace(state, isr=isr), rules)
    return after if after is not state else msgspec.structs.replace(state, partition_epoch=state.partition_epoch + 1)


def unless_older(before: PartitionState, after: PartitionState, log_epoch: int) -> PartitionState:
    """Return `after`, unless this is an election by an older copy of the metadata: then nobody leads, or is elected.

    `log_epoch` is the latest leader epoch that replicas have reported of their logs. If it is above that of `before`,
    members of the ISR and the ELR may lack committed records. The leader epoch stays, so that replicas whose logs are
    ahead of it ask for the election of the longest log (`overtake`).
    """
    if after.leader_epoch == before.leader_epoch or log_epoch <= before.leader_epoch:
        return after
    return msgspec.structs.replace(
        after,
        leader=NO_LEADER,
        leader_epoch=before.leader_epoch,
        partition_epoch=before.partition_epoch + 1,
        isr=(),
        elr=(),
        last_known_leader=NO_LEADER,
    )


def lose(state: PartitionState, broker: int, rules: Rules) -> PartitionState:
    """Return the partition after a broker's log was found to lack records: the broker is no leader and no candidate.

    If no other replica has all committed records, the partition has no leader until an administrator accepts the
    loss. The partition epoch always rises.
    """
    isr = tuple(replica for replica in state.isr if replica != broker and rules.is_alive(replica))
    wanted = msgspec.structs.replace(state, isr=isr, lacking=_lacking_with(state, broker))
    after = revised(state, wanted, rules, (broker,))
    return after if after is not state else msgspec.structs.replace(state, partition_epoch=state.partition_epoch + 1)


def _lacking_with(state: PartitionState, broker: int) -> tuple[int, ...]:
    return tuple(replica for replica in state.replicas if replica in state.lacking or replica == broker)


def relies_on(state: PartitionState, broker: int) -> bool:
    """True if a broker leads the partition, or could be elected leader by a clean election.

    If the log of such a broker is missing, the broker must not create an empty log in place of the missing one.
    """
    is_last_known = broker == state.last_known_leader and broker not in state.lacking
    return broker in (state.leader, *state.isr, *state.elr) or is_last_known


def counts_on(state: PartitionState, broker: int, failed_epoch: int) -> bool:
    """True if a partition has to change because a replica's log failed in leader epoch `failed_epoch`.

    The log may lack acknowledged records when it is available again. The replica therefore has to leave the ISR and the
    ELR, unless no other replica has all committed records. The leader epoch has to rise above `failed_epoch`, because a
    fetch from before the failure could bring the replica back into the ISR. A `failed_epoch` of -1
    stands for no known epoch.
    """
    members = {*state.isr, *state.elr}
    return state.leader_epoch <= failed_epoch or (broker in members and len(members) > 1)


def resign(state: PartitionState, broker: int, failed_epoch: int, rules: Rules) -> PartitionState:
    """Return the partition after a broker's log failed in leader epoch `failed_epoch`.

    The log may lack records when it is available again, so the broker cannot be elected until its replica is in sync.
    If no other replica has all committed records, the broker stays the leader in a new leader epoch, and serves the
    partition once its log is available. Returns `state` itself if the partition need not change.
    """
    if not counts_on(state, broker, failed_epoch):
        return state
    others = msgspec.structs.replace(
        rules, brokers={each: known for each, known in rules.brokers.items() if each != broker}
    )
    isr = tuple(replica for replica in state.isr if others.is_alive(replica))
    wanted = msgspec.structs.replace(state, isr=isr, lacking=_lacking_with(state, broker))
    after = revised(state, wanted, others, (broker,))
    if after.leader == NO_LEADER and not after.isr and not after.elr and broker in (*state.isr, *state.elr):
        after = led_by(state, broker, rules) if rules.is_alive(broker) else state
    elif after.leader_epoch <= failed_epoch:
        after = msgspec.structs.replace(after, leader_epoch=failed_epoch + 1)
    return after if after is state else msgspec.structs.replace(after, partition_epoch=state.partition_epoch + 1)


def decide_reassignment(
    state: PartitionState, targets: Sequence[int] | None, rules: Rules, *, may_change_factor: bool = True
) -> PartitionState:
    """Return the partition with a reassignment to `targets`, the preferred leader first; None cancels a reassignment.

    A reassignment in progress is replaced: replicas that it added are dropped unless they are in `targets`. Raises
    ApiError if:
    - `targets` is not a valid set of replicas;
    - the replication factor would change, and `may_change_factor` is False;
    - the ISR or the ELR has members, but none of these members would remain a replica;
    - `targets` is None, and no reassignment is in progress.
    """
    original = [replica for replica in state.replicas if replica not in state.adding_replicas]
    if targets is None:
        if not is_reassigned(state):
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "There is no reassignment to cancel.")
        return _revised(state, original, (), (), rules)
    _check_targets(targets, rules)
    if not may_change_factor and len(targets) != len(original):
        message = (
            f"The replication factor is {len(original)} and must not change, but the request has {len(targets)} "
            "replicas."
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    adding = tuple(replica for replica in targets if replica not in original)
    removing = tuple(sorted(replica for replica in original if replica not in targets))
    return _revised(state, [*targets, *removing], adding, removing, rules)


def is_reassigned(state: PartitionState) -> bool:
    """True if a reassignment of this partition is in progress."""
    return bool(state.adding_replicas or state.removing_replicas)


def _check_targets(targets: Sequence[int], rules: Rules) -> None:
    complaint = _complaint(targets, rules)
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The replica assignment {list(targets)} {complaint}.")


def _complaint(targets: Sequence[int], rules: Rules) -> str | None:
    if not targets:
        return "is empty"
    negative = [broker for broker in targets if broker < 0]
    if negative:
        return f"includes broker {negative[0]}; broker ids must be 0 or more"
    if len(set(targets)) < len(targets):
        return "includes a broker more than once"
    unknown = [broker for broker in targets if broker not in rules.brokers]
    if unknown:
        return f"includes broker {unknown[0]}; the registered brokers are {sorted(rules.brokers)}"
    return None


def _revised(
    state: PartitionState,
    replicas: list[int],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
    rules: Rules,
) -> PartitionState:
    have_all = {*state.isr, *state.elr}
    if have_all and have_all.isdisjoint(replicas):
        message = (
            f"None of the replicas {replicas} has all records; wait until one of them is in the ISR {list(state.isr)}."
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    wanted = msgspec.structs.replace(
        with_replicas(state, replicas),
        isr=tuple(broker for broker in state.isr if broker in replicas),
        adding_replicas=adding,
        removing_replicas=removing,
    )
    return revised(state, wanted, rules)


UNKNOWN_BROKER_EPOCH: Final = -1


class IsrChange(msgspec.Struct, frozen=True):
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
        complaint = _complaint_about_isr(rules.brokers.get(broker), broker_epoch, broker in state.isr)
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


def _complaint_about_isr(registration: BrokerRegistration | None, broker_epoch: int, is_member: bool) -> str | None:
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
