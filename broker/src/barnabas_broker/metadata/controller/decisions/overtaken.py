"""The state of a partition whose logs are ahead of the metadata, because an older copy of the metadata was restored.

The ISR in the older copy proves nothing, because a later leader may have committed records without some of these
replicas. As in Raft, the log with the latest leader epoch, and the longest of several such logs, has every committed
record that any live replica has.
"""

from typing import NamedTuple

import msgspec

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.model import NO_LEADER, PartitionState


class LogAhead(NamedTuple):
    """A leader epoch of a replica's log that is later than the leader epoch in the metadata.

    While `waits` is True, the partition stays unchanged until all registered replicas are alive.
    """

    epoch: int
    waits: bool


def overtake(state: PartitionState, ahead: LogAhead, rules: Rules) -> PartitionState:
    """Return the partition led by the replica with the longest log, in a leader epoch above that of every log.

    `rules.log_ends` must come from the registered incarnations. Replicas whose logs end where the leader's log ends are
    in sync; all others have to fetch first. Replicas that lack records are no candidates. Returns `state` itself if the
    metadata is not behind `ahead`, if no live replica is a candidate, or while the partition waits for other replicas.
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
