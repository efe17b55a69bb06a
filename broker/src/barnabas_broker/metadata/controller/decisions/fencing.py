"""The state of a partition after its brokers die, begin a new incarnation or shut down."""

from dataclasses import replace

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import led_by
from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.controller.decisions.state_changes import revised
from barnabas_broker.metadata.model import NO_LEADER, PartitionState


def remove_fenced(state: PartitionState, rules: Rules) -> PartitionState:
    """Return the partition without fenced brokers in its ISR; `state` itself if nothing changes.

    Fenced brokers are in no ISR. Brokers that are shutting down are in none either, where another one can lead. The ISR
    may become empty; then there is no leader until an eligible one is back.
    """
    if state.leader in state.isr and not state.elr and all(map(rules.may_lead, state.isr)):
        return state
    living = tuple(broker for broker in state.isr if rules.is_alive(broker))
    staying = tuple(broker for broker in living if rules.may_lead(broker))
    return revised(state, msgspec.structs.replace(state, isr=staying or living), rules)


def remove_dead(state: PartitionState, rules: Rules) -> PartitionState:
    """Return the result of `remove_fenced`, but keep a live broker that is shutting down: it moves leadership itself.

    So only one broker writes, and two do not conflict. If it dies meanwhile, it is fenced.
    """
    if state.leader in state.isr and not state.elr and all(map(rules.is_alive, state.isr)):
        return state
    return remove_fenced(state, rules)


def begin_incarnation(
    state: PartitionState, broker: int, lacks_records: bool, rules: Rules, *, is_past: bool = False
) -> PartitionState:
    """Return the partition before a restarted broker is unfenced: it begins as a follower.

    The partition epoch rises, so that no decision on the incarnation before takes effect any more, for example to take
    it into the ISR; unless the broker is out of the ISR and the incarnation before `is_past`: a broker that knows the
    partition as it is now knows that it has ended. Only if it is the one replica, so that nobody can have decided
    anything, it goes on where it stopped, if it lacks nothing.
    """
    if lacks_records:
        return lose(state, broker, rules)
    if state.replicas == (broker,) or (is_past and broker not in state.isr and broker != state.leader):
        return state
    isr = tuple(replica for replica in state.isr if replica != broker and rules.is_alive(replica))
    after = revised(state, msgspec.structs.replace(state, isr=isr), rules)
    return after if after is not state else msgspec.structs.replace(state, partition_epoch=state.partition_epoch + 1)


def lose(state: PartitionState, broker: int, rules: Rules) -> PartitionState:
    """The partition once it is known that a broker's log lacks records: it is no leader and no candidate.

    Where nobody else has what is committed there is no leader until somebody accepts the loss. The partition epoch
    rises in any case.
    """
    isr = tuple(replica for replica in state.isr if replica != broker and rules.is_alive(replica))
    wanted = msgspec.structs.replace(state, isr=isr, lacking=_lacking_with(state, broker))
    after = revised(state, wanted, rules, (broker,))
    return after if after is not state else msgspec.structs.replace(state, partition_epoch=state.partition_epoch + 1)


def _lacking_with(state: PartitionState, broker: int) -> tuple[int, ...]:
    return tuple(replica for replica in state.replicas if replica in state.lacking or replica == broker)


def relies_on(state: PartitionState, broker: int) -> bool:
    """True if a broker leads, or may come to lead by itself: then it must not start over with an empty log."""
    is_last_known = broker == state.last_known_leader and broker not in state.lacking
    return broker in (state.leader, *state.isr, *state.elr) or is_last_known


def counts_on(state: PartitionState, broker: int, failed_epoch: int) -> bool:
    """True if the partition still relies on a replica whose log failed in leader epoch `failed_epoch` (-1: before all).

    A log that is available again may lack acknowledged records. So it starts over, in neither ISR nor ELR. The
    epoch rises, because a fetch from before the failure may still be under way and would bring the replica into the
    ISR. If no other replica has all committed records, it still leads.
    """
    members = {*state.isr, *state.elr}
    return state.leader_epoch <= failed_epoch or (broker in members and len(members) > 1)


def resign(state: PartitionState, broker: int, failed_epoch: int, rules: Rules) -> PartitionState:
    """Return the partition without a broker that cannot use its log, in the next leader epoch; or `state` unchanged.

    Its log may lack records when it is back, so it is no candidate before it is in sync. Where nobody else has what is
    committed the broker leads on in that epoch, once its log is back, if that has all.
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
