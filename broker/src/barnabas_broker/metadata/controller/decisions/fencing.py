"""The state of a partition after brokers die, restart or shut down."""

from dataclasses import replace

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import led_by
from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.controller.decisions.state_changes import revised
from barnabas_broker.metadata.model import NO_LEADER, PartitionState


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
    others = replace(rules, brokers={each: known for each, known in rules.brokers.items() if each != broker})
    isr = tuple(replica for replica in state.isr if others.is_alive(replica))
    wanted = msgspec.structs.replace(state, isr=isr, lacking=_lacking_with(state, broker))
    after = revised(state, wanted, others, (broker,))
    if after.leader == NO_LEADER and not after.isr and not after.elr and broker in (*state.isr, *state.elr):
        after = led_by(state, broker, rules) if rules.is_alive(broker) else state
    elif after.leader_epoch <= failed_epoch:
        after = msgspec.structs.replace(after, leader_epoch=failed_epoch + 1)
    return after if after is state else msgspec.structs.replace(after, partition_epoch=state.partition_epoch + 1)
