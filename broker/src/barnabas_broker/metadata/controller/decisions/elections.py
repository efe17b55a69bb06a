"""The election of a partition's leader (KIP-966).

The candidates are the members of the ISR, then the eligible leader replicas, then the last known leader. Each of these
replicas has every committed record, or at least as many as any other replica. In an unclean election, which needs
`unclean.leader.election.enable` or an administrator's request, the replica with the longest known log leads, even if it
lacks committed records.

The state of a partition whose logs are ahead of the metadata, because an older copy of the metadata was restored.
The restored ISR cannot be trusted, because a later leader may have committed records that some of its members lack.
As in Raft, the log with the latest leader epoch (the longest, if several logs have it) has every committed record
that any live replica has.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration, LogEnd, PartitionState
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import InvalidConfig, Value, parse_value
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_core.errors import ApiError, ErrorCode

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


class Rules(msgspec.Struct, frozen=True):
    """The brokers and topic settings that a decision on a partition uses.

    `brokers` has all registered brokers. `log_ends` has the log ends that the replicas have reported; only
    `overtake`, and elections from outside the ISR, need these log ends.
    """

    brokers: Mapping[int, BrokerRegistration]
    min_isr: int = 1
    unclean: bool = False
    log_ends: Mapping[int, LogEnd] = msgspec.field(default_factory=dict)

    def log_end(self, broker: int) -> tuple[int, int]:
        """Return the leader epoch and offset at which a broker's log ends; (-1, -1) if unknown."""
        end = self.log_ends.get(broker)
        return (-1, -1) if end is None else (end.epoch, end.offset)

    def is_alive(self, broker: int) -> bool:
        """True if a broker is registered and not fenced."""
        registration = self.brokers.get(broker)
        return registration is not None and not registration.fenced

    def may_lead(self, broker: int) -> bool:
        """True if a broker is alive and not shutting down."""
        registration = self.brokers.get(broker)
        return registration is not None and not registration.fenced and not registration.is_shutting_down

    def suffices(self, isr: Sequence[int], replicas: Sequence[int]) -> bool:
        """True if the ISR is large enough for the high watermark to advance (KIP-966)."""
        return len(isr) >= min(self.min_isr, len(replicas))


def rules_of(configs: Mapping[str, str], brokers: Mapping[int, BrokerRegistration], config: BrokerConfig) -> Rules:
    """Return the settings and brokers that determine the leaders and ISRs of a topic's partitions.

    `configs` has the topic's own settings, and `config` provides the defaults.
    """
    min_isr = _value(configs, MIN_ISR, config.min_insync_replicas)
    unclean = _value(configs, UNCLEAN, config.unclean_leader_election_enable)
    assert isinstance(min_isr, int), "min.insync.replicas must be an integer"
    return Rules(brokers, min_isr, unclean is True)


def _value(configs: Mapping[str, str], name: str, default: Value) -> Value:
    text = configs.get(name)
    if text is None:
        return default
    try:
        return parse_value(TOPIC_CONFIGS[name], text)
    except InvalidConfig:
        return default  # Leaders must be elected even if a stored value has become unreadable.


class ElectionType(IntEnum):
    """The type of election in an ElectLeaders request, with the numbers of Kafka's protocol."""

    PREFERRED = 0
    UNCLEAN = 1


def choose_leader(state: PartitionState, rules: Rules) -> int:
    """Return the current leader if it may keep leading, else the best candidate, else NO_LEADER.

    Outside the ISR the longest log comes first: an ELR of an older copy of the metadata may have replicas that lack
    records.
    """
    if state.leader in state.isr and rules.may_lead(state.leader):
        return state.leader
    groups = [*_candidates(state), *([state.replicas] if rules.unclean else [])]
    outside_isr = [sorted(each, key=rules.log_end, reverse=True) for each in groups[1:]]
    for candidates in (groups[0], *outside_isr):
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

    An unclean leader has an epoch above those of all reported logs, also of logs that are ahead of the metadata.
    Raises ApiError if no election is needed, or no replica can lead.
    """
    decide = {ElectionType.PREFERRED: _preferred, ElectionType.UNCLEAN: _unclean}[election]
    elected = led_by(state, decide(state, rules), rules)
    epoch = max(elected.leader_epoch, *(rules.log_end(each)[0] + 1 for each in state.replicas))
    return msgspec.structs.replace(elected, leader_epoch=epoch, partition_epoch=state.partition_epoch + 1)


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
    leader = choose_leader(state, msgspec.structs.replace(rules, unclean=True))
    if leader == NO_LEADER:
        message = f"None of the replicas {list(state.replicas)} is alive."
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    return leader


class LogAhead(msgspec.Struct, frozen=True):
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
