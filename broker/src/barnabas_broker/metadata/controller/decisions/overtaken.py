"""The state of a partition whose logs are ahead of the metadata, because an older copy of it was restored.

Its ISR says nothing then, for a later leader may have committed without some of it. The logs say more: as in Raft, the
one with the latest epoch, and of those the longest, has all that the live replicas can know of.
"""

from typing import NamedTuple

import msgspec

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.model import NO_LEADER, PartitionState


class LogAhead(NamedTuple):
    """A replica's log has a later epoch than the metadata. `waits`: the other replicas still get time to come."""

    epoch: int
    waits: bool


def overtake(state: PartitionState, ahead: LogAhead, rules: Rules) -> PartitionState:
    """Return the partition led by its longest log, in an epoch above those of all logs; `state` if it is so already.

    `rules.log_ends` must be of the incarnations that are registered. Replicas whose logs end as the leader's does are
    in sync with it, all others have to fetch first. Who lacks records does not count.
    """
    if ahead.epoch <= state.leader_epoch:
        return state
    others_come = any(not rules.is_alive(replica) for replica in state.replicas if replica in rules.brokers)
    candidates = [each for each in state.replicas if rules.is_alive(each) and each not in state.lacking]
    if not candidates or (ahead.waits and others_come):
        return state
    leader = max(candidates, key=rules.log_end)
    longest = rules.log_end(leader)
    isr = tuple(each for each in candidates if each == leader or rules.log_end(each) == longest)
    known = [rules.log_end(each)[0] for each in state.replicas]
    return msgspec.structs.replace(
        state,
        leader=leader,
        leader_epoch=max(ahead.epoch, *known) + 1,
        partition_epoch=state.partition_epoch + 1,
        isr=isr,
        elr=(),
        last_known_leader=NO_LEADER,
    )
