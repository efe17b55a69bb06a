"""The next state of a partition after a change of replicas or ISR, with all that follows from it."""

from collections.abc import Container

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import choose_leader, led_by
from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.model import NO_LEADER, PartitionState


def revised(before: PartitionState, wanted: PartitionState, rules: Rules, lost: Container[int] = ()) -> PartitionState:
    """Return the state after a change of replicas, ISR or reassignment to `wanted`, with all that follows from it.

    A reassignment ends once all its targets are in sync. A replica that leaves a too small ISR becomes an eligible
    leader replica, except those in `lost`, which may lack records; replicas in sync lack nothing. If the leader
    cannot stay, another one is elected. The epochs rise; `before` itself is returned if nothing changes.
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
    """Return the partition without the replicas that are removed, once all others are in sync (KIP-455)."""
    if not state.adding_replicas and not state.removing_replicas:
        return state
    targets = [replica for replica in state.replicas if replica not in state.removing_replicas]
    if not set(targets) <= set(state.isr):
        return state
    return msgspec.structs.replace(
        with_replicas(state, targets), isr=tuple(targets), adding_replicas=(), removing_replicas=()
    )


def with_replicas(state: PartitionState, replicas: list[int]) -> PartitionState:
    """`state` with other replicas, each with the log directory that it was given; new ones choose for themselves."""
    log_dirs: tuple[str, ...] = ()
    if state.log_dirs:
        given = dict(zip(state.replicas, state.log_dirs, strict=True))
        log_dirs = tuple(given.get(replica, "") for replica in replicas)
    return msgspec.structs.replace(state, replicas=tuple(replicas), log_dirs=log_dirs)


def _eligible_leader_replicas(
    before: PartitionState, after: PartitionState, rules: Rules, lost: Container[int]
) -> tuple[int, ...]:
    """Return the eligible leader replicas: since they left the ISR, no record can have been committed.

    With fewer than min ISR the high watermark does not advance.
    """
    if rules.suffices(after.isr, after.replicas):
        return ()
    return tuple(
        replica
        for replica in after.replicas
        if (replica in before.elr or replica in before.isr) and replica not in after.isr and replica not in lost
    )
