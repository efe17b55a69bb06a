"""What becomes of a partition when its brokers die, begin a new life or shut down."""

import msgspec

from barnabas_broker.metadata.decisions.revisions import revised
from barnabas_broker.metadata.decisions.terms import Terms
from barnabas_broker.metadata.model import PartitionState


def settle(state: PartitionState, terms: Terms) -> PartitionState:
    """The partition as it should be, given who lives; `state` itself where it is so.

    Fenced brokers are in no ISR. Brokers that are shutting down are in none either, where another one can lead. The ISR
    may become empty; then there is no leader until an eligible one is back.
    """
    if state.leader in state.isr and not state.elr and all(map(terms.may_lead, state.isr)):
        return state
    living = tuple(broker for broker in state.isr if terms.lives(broker))
    staying = tuple(broker for broker in living if terms.may_lead(broker))
    return revised(state, msgspec.structs.replace(state, isr=staying or living), terms)


def begin_life(state: PartitionState, broker: int, may_lack_records: bool, terms: Terms) -> PartitionState:
    """The partition before a broker that started anew is let back in: it begins as a follower.

    The partition epoch rises in any case, so that nothing comes true any more that was decided on the life before, such
    as to take it into the ISR. Only where it is the one replica, so that nobody can have decided anything, it goes on
    where it stopped, if it lacks nothing.
    """
    if state.replicas == (broker,) and not may_lack_records:
        return state
    isr = tuple(replica for replica in state.isr if replica != broker and terms.lives(replica))
    after = revised(state, msgspec.structs.replace(state, isr=isr), terms, (broker,) if may_lack_records else ())
    return after if after is not state else msgspec.structs.replace(state, partition_epoch=state.partition_epoch + 1)


def resign(state: PartitionState, broker: int, terms: Terms) -> PartitionState:
    """The partition without a broker that lives and cannot use its log: in no ISR, and no leader for the time being.

    `state` itself where no other one can lead.
    """
    if not any(terms.lives(other) for other in (*state.isr, *state.elr) if other != broker):
        return state
    isr = tuple(replica for replica in state.isr if replica != broker and terms.lives(replica))
    return revised(state, msgspec.structs.replace(state, isr=isr), terms, (broker,))
