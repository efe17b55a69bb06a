"""The election of a partition's leader (KIP-966).

The candidates are the members of the ISR, then the eligible leader replicas, then the last known leader. Each of these
replicas has every committed record, or at least as many as any other replica. In an unclean election, which needs
`unclean.leader.election.enable` or an administrator's request, the replica with the longest known log leads, even if it
lacks committed records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

import msgspec

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.model import NO_LEADER, PartitionState
from barnabas_core.errors import ApiError, ErrorCode


class ElectionType(IntEnum):
    """The type of election in an ElectLeaders request, with the numbers of Kafka's protocol."""

    PREFERRED = 0
    UNCLEAN = 1


def choose_leader(state: PartitionState, rules: Rules) -> int:
    """Return the current leader if it may keep leading, else the best candidate, else NO_LEADER."""
    if state.leader in state.isr and rules.may_lead(state.leader):
        return state.leader
    unclean = [sorted(state.replicas, key=rules.log_end, reverse=True)] if rules.unclean else []
    for candidates in (*_candidates(state), *unclean):
        leader = _first(candidates, state.leader, rules)
        if leader != NO_LEADER:
            return leader
    return NO_LEADER


def _candidates(state: PartitionState) -> Iterator[Sequence[int]]:
    """Yield the groups of candidates for a clean election: the ISR, then the ELR, then the last known leader."""
    yield [replica for replica in state.replicas if replica in state.isr]
    yield [replica for replica in state.replicas if replica in state.elr]
    last_known = state.last_known_leader
    if not state.isr and not state.elr and last_known in state.replicas and last_known not in state.lacking:
        yield (last_known,)


def is_lost(state: PartitionState) -> bool:
    """True if a partition has neither a leader nor a candidate for a clean election, because all replicas lack records.

    An administrator can accept the loss by an unclean election.
    """
    return state.leader == NO_LEADER and not any(candidates for candidates in _candidates(state))


def _first(candidates: Sequence[int], leader: int, rules: Rules) -> int:
    """Return the first candidate that is alive and not shutting down.

    If all live candidates are shutting down, return one of them, preferably `leader`. Return NO_LEADER if no candidate
    is alive.
    """
    staying = [broker for broker in candidates if rules.may_lead(broker)]
    if staying:
        return staying[0]
    living = [broker for broker in candidates if rules.is_alive(broker)]
    if leader in living:
        return leader
    return living[0] if living else NO_LEADER


def led_by(state: PartitionState, leader: int, rules: Rules) -> PartitionState:
    """Return `state` with this leader in the next leader epoch; a leader outside the ISR becomes the only ISR member.

    If the leader was in the ISR or the ELR, the other ELR members stay in the ELR as long as the ISR is below
    min.insync.replicas. If the leader was in neither, the election is unclean: all replicas have to copy the log of the
    new leader, so the ELR and the list of replicas that may lack records (`lacking`) become empty.
    """
    if leader == NO_LEADER:
        last_known = state.last_known_leader if state.leader == NO_LEADER else state.leader
        return msgspec.structs.replace(
            state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1, last_known_leader=last_known
        )
    isr = state.isr if leader in state.isr else (leader,)
    has_all = leader in state.isr or leader in state.elr
    stays = has_all and not rules.suffices(isr, state.replicas)
    lacking = tuple(broker for broker in state.lacking if broker not in isr) if has_all else ()
    return msgspec.structs.replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        elr=tuple(broker for broker in state.elr if broker not in isr) if stays else (),
        last_known_leader=NO_LEADER,
        lacking=lacking,
    )


def decide_election(state: PartitionState, election: ElectionType, rules: Rules) -> PartitionState:
    """Return the partition after an election that an administrator requested (KIP-460).

    Raises ApiError if no election is needed, or no replica can lead.
    """
    decide = {ElectionType.PREFERRED: _preferred, ElectionType.UNCLEAN: _unclean}[election]
    elected = led_by(state, decide(state, rules), rules)
    return msgspec.structs.replace(elected, partition_epoch=state.partition_epoch + 1)


def wants_preferred(state: PartitionState, rules: Rules) -> bool:
    """True if the preferred replica does not lead the partition, but is in the ISR and may lead."""
    preferred = state.replicas[0]
    return state.leader != preferred and preferred in state.isr and rules.may_lead(preferred)


def _preferred(state: PartitionState, rules: Rules) -> int:
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"The preferred replica {preferred} is the leader already.")
    if preferred not in state.isr or not rules.may_lead(preferred):
        why = "is not in the ISR" if preferred not in state.isr else "is shutting down or not alive"
        message = f"The preferred replica {preferred} {why}; the ISR is {list(state.isr)}."
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    return preferred


def _unclean(state: PartitionState, rules: Rules) -> int:
    if state.leader != NO_LEADER:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"Broker {state.leader} is the leader already.")
    leader = choose_leader(state, replace(rules, unclean=True))
    if leader == NO_LEADER:
        message = f"None of the replicas {list(state.replicas)} is alive."
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    return leader
