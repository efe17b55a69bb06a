"""Decisions about ISR changes, reassignments and requested elections: refusals, and new states of a partition."""

from uuid import UUID

import msgspec
import pytest
from partition_samples import PARTITION, TOPIC_ID, brokers, state

from barnabas_broker.metadata.controller.decisions.elections import (
    ElectionType,
    Rules,
    decide_election,
    wants_preferred,
)
from barnabas_broker.metadata.controller.decisions.fencing import (
    UNKNOWN_BROKER_EPOCH,
    IsrChange,
    check_topic,
    decide_isr_change,
    decide_reassignment,
    is_reassigned,
)
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_core.errors import ApiError, ErrorCode


def proposal(
    *isr: int, leader_epoch: int = 4, partition_epoch: int = 9, epochs: dict[int, int] | None = None
) -> IsrChange:
    members = {broker: 10 + broker for broker in isr}
    return IsrChange(PARTITION, TOPIC_ID, leader_epoch, partition_epoch, members | (epochs or {}))


REFUSED_CHANGES = [
    (proposal(1, 2, leader_epoch=3), ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch is 4, not 3."),
    (proposal(1, 2, leader_epoch=5), ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch is 4, not 5."),
    (proposal(1, 2, partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION, "The partition epoch is 9, not 8."),
    (proposal(2), ErrorCode.INVALID_REQUEST, "must contain the leader 1"),
    (proposal(1, 5), ErrorCode.INVALID_REQUEST, "no brokers except the replicas [1, 2, 3, 4]"),
    (proposal(1, 3), ErrorCode.INELIGIBLE_REPLICA, "Broker 3 is not alive."),
    (proposal(1, 4), ErrorCode.INELIGIBLE_REPLICA, "Broker 4 is shutting down."),
    (
        proposal(1, 2, epochs={2: 11}),
        ErrorCode.INELIGIBLE_REPLICA,
        "Broker 2 is registered with broker epoch 12, not 11.",
    ),
    (
        proposal(1, 2, epochs={2: UNKNOWN_BROKER_EPOCH}),
        ErrorCode.INELIGIBLE_REPLICA,
        "Broker 2 is registered with broker epoch",
    ),
]


@pytest.mark.parametrize(("change", "code", "message"), REFUSED_CHANGES)
def test_an_invalid_isr_change_is_refused_as_in_kafka(change: IsrChange, code: ErrorCode, message: str) -> None:
    before = state([1, 2, 3, 4], 1, [1])
    with pytest.raises(ApiError) as refused:
        decide_isr_change(before, change, Rules(brokers(1, 2, fenced=[3], stopping=[4])))
    assert refused.value.code is code
    assert message in str(refused.value)


def test_an_isr_change_for_a_recreated_topic_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        check_topic(TopicDocument("t", UUID(int=78), ()), proposal(1))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_the_isr_grows_and_shrinks_as_the_leader_proposes() -> None:
    rules = Rules(brokers(1, 2, 3), min_isr=2)
    grown = decide_isr_change(state([1, 2, 3], 1, [1], elr=(3,)), proposal(1, 2), rules)
    assert grown == state([1, 2, 3], 1, [1, 2], partition_epoch=10)
    shrunk = decide_isr_change(state([1, 2, 3], 1, [1, 2]), proposal(1), rules)
    assert shrunk == state([1, 2, 3], 1, [1], elr=(2,), partition_epoch=10)


def test_an_isr_change_to_the_same_isr_raises_the_partition_epoch() -> None:
    before = state([1, 2], 1, [1, 2])
    change = proposal(1, 2, epochs={2: UNKNOWN_BROKER_EPOCH})
    assert decide_isr_change(before, change, Rules(brokers(1, 2))) == state([1, 2], 1, [1, 2], partition_epoch=10)


def test_a_leader_that_shuts_down_can_add_its_successor_to_the_isr() -> None:
    after = decide_isr_change(state([1, 2], 1, [1]), proposal(1, 2), Rules(brokers(2, stopping=[1])))
    assert (after.leader, after.isr, after.leader_epoch) == (2, (1, 2), 5)


def test_a_reassignment_completes_when_all_targets_are_in_sync() -> None:
    rules = Rules(brokers(1, 2, 3, 4))
    before = msgspec.structs.replace(state([1, 2], 1, [1, 2]), log_dirs=("/a", "/b"))
    going = decide_reassignment(before, [3, 4, 2], rules)
    assert going == state(
        [3, 4, 2, 1],
        1,
        [1, 2],
        partition_epoch=10,
        adding_replicas=(3, 4),
        removing_replicas=(1,),
        log_dirs=("", "", "/b", "/a"),
    )
    partly = decide_isr_change(going, proposal(1, 2, 3, partition_epoch=10), rules)
    assert is_reassigned(partly)
    done = decide_isr_change(partly, proposal(1, 2, 3, 4, partition_epoch=11), rules)
    assert done == state([3, 4, 2], 3, [3, 4, 2], leader_epoch=5, partition_epoch=12, log_dirs=("", "", "/b"))


def test_a_lower_replication_factor_takes_effect_immediately_if_its_replicas_are_in_sync() -> None:
    rules = Rules(brokers(1, 2, 3), min_isr=2)
    assert decide_reassignment(state([1, 2, 3], 1, [1, 2, 3]), [2], rules) == state(
        [2], 2, [2], leader_epoch=5, partition_epoch=10
    )
    waiting = decide_reassignment(state([1, 2, 3], 1, [1]), [1, 2], rules)
    assert waiting == state([1, 2, 3], 1, [1], partition_epoch=10, removing_replicas=(3,))


def test_reordering_the_replicas_changes_the_preferred_leader() -> None:
    after = decide_reassignment(state([1, 2], 1, [1, 2]), [2, 1], Rules(brokers(1, 2)))
    assert after == state([2, 1], 1, [1, 2], partition_epoch=10)
    assert wants_preferred(after, Rules(brokers(1, 2)))
    assert not wants_preferred(after, Rules(brokers(1, fenced=[2])))


def test_a_reassignment_can_be_cancelled_or_replaced() -> None:
    rules = Rules(brokers(1, 2, 3, 4))
    going = decide_reassignment(state([1, 2], 1, [1, 2]), [3, 2], rules)
    half = decide_isr_change(going, proposal(1, 2, partition_epoch=10), rules)
    undone = decide_reassignment(half, None, rules)
    assert (set(undone.replicas), undone.isr, is_reassigned(undone)) == ({1, 2}, (2, 1), False)
    other = decide_reassignment(half, [4, 2], rules)
    assert (other.replicas, other.adding_replicas, other.removing_replicas) == ((4, 2, 1), (4,), (1,))


ONLY_THE_ADDED_ONE_IS_IN_SYNC = state([2, 1], 2, [2], adding_replicas=(2,), removing_replicas=(1,))

REFUSED_REASSIGNMENTS = [
    (state([1], 1, [1]), None, True, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment to cancel"),
    (state([1], 1, [1]), [], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "is empty"),
    (state([1], 1, [1]), [2, 2], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a broker more than once"),
    (
        state([1], 1, [1]),
        [-1],
        True,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "includes broker -1; broker ids must be 0 or more",
    ),
    (state([1], 1, [1]), [7], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the registered brokers are [1, 2]"),
    (state([1], 1, [1]), [1, 2], False, ErrorCode.INVALID_REPLICATION_FACTOR, "factor is 1 and must not change"),
    (ONLY_THE_ADDED_ONE_IS_IN_SYNC, None, True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "is in the ISR [2]"),
    (
        ONLY_THE_ADDED_ONE_IS_IN_SYNC,
        [1],
        True,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "None of the replicas [1] has all records",
    ),
]


@pytest.mark.parametrize(("before", "targets", "may_change_factor", "code", "message"), REFUSED_REASSIGNMENTS)
def test_an_invalid_reassignment_is_refused(
    before: PartitionState, targets: list[int] | None, may_change_factor: bool, code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        decide_reassignment(before, targets, Rules(brokers(1, 2)), may_change_factor=may_change_factor)
    assert refused.value.code is code
    assert message in str(refused.value)


REFUSED_ELECTIONS = [
    (state([1, 2], 1, [1, 2]), ElectionType.PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
    (state([1, 2], 2, [2]), ElectionType.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    (state([3, 2], 2, [2, 3]), ElectionType.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    (state([1, 2], 2, [2]), ElectionType.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
    (state([3], -1, [], elr=(3,)), ElectionType.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
]


@pytest.mark.parametrize(("before", "election", "code"), REFUSED_ELECTIONS)
def test_an_impossible_election_is_refused(before: PartitionState, election: ElectionType, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        decide_election(before, election, Rules(brokers(1, 2, fenced=[3])))
    assert refused.value.code is code


def test_leaders_are_elected_on_request() -> None:
    rules = Rules(brokers(1, 2, fenced=[3]))
    preferred = decide_election(state([1, 2], 2, [1, 2]), ElectionType.PREFERRED, rules)
    assert preferred == state([1, 2], 1, [1, 2], leader_epoch=5, partition_epoch=10)
    unclean = decide_election(state([3, 2], -1, [], elr=(3,), last_known_leader=3), ElectionType.UNCLEAN, rules)
    assert unclean == state([3, 2], 2, [2], leader_epoch=5, partition_epoch=10)
