"""The next state of a partition after a change of its replicas or ISR, including the ELR and the leader."""

from collections.abc import Container

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import choose_leader, led_by
from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.model import NO_LEADER, PartitionState


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
