"""The state of a partition whose logs are ahead of the metadata, because an older copy of the metadata was restored.

The restored ISR cannot be trusted, because a later leader may have committed records that some of its members lack. As
in Raft, the log with the latest leader epoch (the longest, if several logs have it) has every committed record that any
live replica has.
"""

from typing import NamedTuple

import msgspec

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.model import NO_LEADER, PartitionState


class LogAhead(NamedTuple):
    """The report that a replica's log has a later leader epoch than the partition has in the metadata.

    `epoch` is the leader epoch of the log. If `waits` is True, `overtake` leaves the partition unchanged until all
    registered replicas are alive.
    """

    epoch: int
    waits: bool


def overtake(state: PartitionState, ahead: LogAhead, rules: Rules) -> PartitionState:
    """Return the partition led by the replica with the longest log, in a leader epoch above the epochs of all logs.

    Replicas whose logs end where the leader's log ends are in sync; all others have to fetch first. Replicas that lack
    records cannot lead. `rules.log_ends` must come from the registered incarnations of the brokers.

    `ahead` is the report of a log that is ahead of the metadata. Return `state` itself if:
    - the leader epoch in the metadata is at least `ahead.epoch`;
    - no live replica can lead;
    - `ahead.waits` is True, and a registered replica is not alive.
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
