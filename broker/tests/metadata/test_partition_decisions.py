"""Elections, fencing, ISR changes and reassignments: as tables, and as any sequence of them that may happen."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.metadata.decisions.balance import wants_preferred
from barnabas_broker.metadata.decisions.elections import ElectionType, choose_leader, decide_election
from barnabas_broker.metadata.decisions.fencing import begin_life, counts_on, resign, settle
from barnabas_broker.metadata.decisions.isr_changes import (
    UNKNOWN_BROKER_EPOCH,
    IsrChange,
    check_topic,
    decide_isr_change,
)
from barnabas_broker.metadata.decisions.lives import may_lack_records
from barnabas_broker.metadata.decisions.reassignments import decide_reassignment, is_reassigned
from barnabas_broker.metadata.decisions.terms import Terms, terms_of
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration, LogEnd, PartitionState, TopicDocument
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

TOPIC_ID = UUID(int=77)
PARTITION = TopicPartition("t", 0)


def brokers(*living: int, fenced: Sequence[int] = (), stopping: Sequence[int] = ()) -> dict[int, BrokerRegistration]:
    """Each in broker epoch 10 plus its id."""
    return {
        number: BrokerRegistration(
            number,
            UUID(int=number),
            (),
            fenced=number in fenced,
            broker_epoch=10 + number,
            is_shutting_down=number in stopping,
        )
        for number in sorted({*living, *fenced, *stopping})
    }


def state(replicas: Sequence[int], leader: int, isr: Sequence[int], **more: object) -> PartitionState:
    before = PartitionState(tuple(replicas), leader, 4, tuple(isr), partition_epoch=9)
    return msgspec.structs.replace(before, **more)


ELECTIONS = [
    pytest.param(state([1, 2, 3], 2, [2, 3]), Terms(brokers(1, 2, 3)), 2, id="the leader stays"),
    pytest.param(state([1, 2, 3], 1, [2, 3]), Terms(brokers(1, 2, 3)), 2, id="the first in sync"),
    pytest.param(state([3, 1, 2], 1, [2, 3]), Terms(brokers(2, fenced=[3, 1])), 2, id="the first that lives"),
    pytest.param(state([1, 2, 3], 1, [], elr=(3,)), Terms(brokers(2, 3, fenced=[1])), 3, id="an eligible one"),
    pytest.param(state([1, 2], 1, [], elr=(1,)), Terms(brokers(2, fenced=[1])), NO_LEADER, id="nobody, not the others"),
    pytest.param(state([1, 2], 1, [], elr=(1,)), Terms(brokers(2, fenced=[1]), unclean=True), 2, id="unclean"),
    pytest.param(state([1, 2], -1, [], last_known_leader=2), Terms(brokers(1, 2)), 2, id="the last known leader"),
    pytest.param(
        state([1, 2], -1, [], elr=(1,), last_known_leader=2),
        Terms(brokers(2, fenced=[1])),
        NO_LEADER,
        id="not the last known leader while one has all",
    ),
    pytest.param(state([1, 2], 1, [1, 2]), Terms(brokers(2, stopping=[1])), 2, id="one that stays"),
    pytest.param(state([1, 2], 2, [1, 2]), Terms(brokers(stopping=[1, 2])), 2, id="all stop: the leader of now"),
    pytest.param(state([1, 2], 3, [1, 2]), Terms(brokers(stopping=[1, 2])), 1, id="all stop: the first"),
]


@pytest.mark.parametrize(("before", "terms", "leader"), ELECTIONS)
def test_who_leads(before: PartitionState, terms: Terms, leader: int) -> None:
    assert choose_leader(before, terms) == leader


SETTLED = [
    pytest.param(
        state([1, 2, 3], 1, [1, 2, 3]),
        Terms(brokers(1, 2, 3), min_isr=2),
        state([1, 2, 3], 1, [1, 2, 3]),
        id="nothing is to be done",
    ),
    pytest.param(
        state([1, 2, 3], 1, [1, 2, 3]),
        Terms(brokers(2, 3, fenced=[1]), min_isr=2),
        state([1, 2, 3], 2, [2, 3], leader_epoch=5, partition_epoch=10),
        id="the leader died",
    ),
    pytest.param(
        state([1, 2, 3], 2, [1, 2, 3]),
        Terms(brokers(2, 3, fenced=[1]), min_isr=2),
        state([1, 2, 3], 2, [2, 3], partition_epoch=10),
        id="a follower died",
    ),
    pytest.param(
        state([1, 2, 3], 2, [2, 3]),
        Terms(brokers(2, 1, fenced=[3]), min_isr=2),
        state([1, 2, 3], 2, [2], elr=(3,), partition_epoch=10),
        id="fewer than min ISR: the leaver stays eligible",
    ),
    pytest.param(
        state([1, 2, 3], 2, [2], elr=(3,)),
        Terms(brokers(3, 1, fenced=[2]), min_isr=2),
        state([1, 2, 3], 3, [3], elr=(2,), leader_epoch=5, partition_epoch=10),
        id="an eligible one leads",
    ),
    pytest.param(
        state([1, 2], 2, [2]),
        Terms(brokers(1, fenced=[2])),
        state([1, 2], -1, [], elr=(2,), leader_epoch=5, partition_epoch=10, last_known_leader=2),
        id="the ISR is empty",
    ),
    pytest.param(
        state([1, 2], 2, [2]),
        Terms(brokers(1, fenced=[2]), unclean=True),
        state([1, 2], 1, [1], leader_epoch=5, partition_epoch=10),
        id="an unclean leader is all there is",
    ),
    pytest.param(
        state([1, 2], 2, [2]),
        Terms(brokers(1, fenced=[2]), min_isr=2, unclean=True),
        state([1, 2], 1, [1], leader_epoch=5, partition_epoch=10),
        id="after an unclean election nobody else is eligible",
    ),
    pytest.param(
        state([1, 2, 3], 1, [1, 2, 3]),
        Terms(brokers(2, 3, stopping=[1]), min_isr=2),
        state([1, 2, 3], 2, [2, 3], leader_epoch=5, partition_epoch=10),
        id="the leader is about to stop",
    ),
    pytest.param(
        state([1, 2], 1, [1]),
        Terms(brokers(2, stopping=[1])),
        state([1, 2], 1, [1]),
        id="the only one in sync leads until it is gone",
    ),
    pytest.param(
        state([1, 2], 1, [1], elr=(2,)),
        Terms(brokers(1, 2), min_isr=1),
        state([1, 2], 1, [1], partition_epoch=10),
        id="min ISR was lowered",
    ),
    pytest.param(
        state([1, 2], 1, [1, 2]),
        Terms(brokers(1), min_isr=2),
        state([1, 2], 1, [1], elr=(2,), partition_epoch=10),
        id="a replica that is not registered",
    ),
]


@pytest.mark.parametrize(("before", "terms", "after"), SETTLED)
def test_partitions_go_with_who_lives(before: PartitionState, terms: Terms, after: PartitionState) -> None:
    assert settle(before, terms) == after
    assert settle(after, terms) is after


def test_a_new_life_leaves_the_isr_and_raises_the_partition_epoch_in_any_case() -> None:
    terms = Terms(brokers(1, 2, fenced=[3]), min_isr=2)
    led_by_it = begin_life(state([3, 1, 2], 3, [3, 1, 2]), 3, False, terms)
    assert led_by_it == state([3, 1, 2], 1, [1, 2], leader_epoch=5, partition_epoch=10)
    outside = begin_life(state([3, 1, 2], 1, [1, 2]), 3, False, terms)
    assert outside == state([3, 1, 2], 1, [1, 2], partition_epoch=10)


def test_a_new_life_that_may_lack_records_is_not_eligible() -> None:
    terms = Terms(brokers(2, fenced=[1, 3]), min_isr=2)
    before = state([1, 2, 3], -1, [], elr=(1, 3), last_known_leader=1)
    assert begin_life(before, 3, False, terms).elr == (1, 3)
    assert begin_life(before, 3, True, terms).elr == (1,)


def test_the_only_replica_goes_on_in_its_epoch_unless_it_may_lack_records() -> None:
    terms = Terms(brokers(fenced=[1]))
    alone = state([1], 1, [1])
    assert begin_life(alone, 1, False, terms) is alone
    lost = begin_life(alone, 1, True, terms)
    assert lost == state([1], -1, [], leader_epoch=5, partition_epoch=10, last_known_leader=1, lacking=(1,))
    assert settle(lost, Terms(brokers(1))) is lost, "it waits until somebody accepts the loss"
    accepted = decide_election(lost, ElectionType.UNCLEAN, Terms(brokers(1)))
    assert accepted == state([1], 1, [1], leader_epoch=6, partition_epoch=11)


def test_a_partition_whose_every_replica_lacks_records_has_no_leader() -> None:
    terms = Terms(brokers(fenced=[1, 2, 3]), min_isr=2)
    now = settle(state([1, 2, 3], 1, [1, 2, 3]), terms)
    assert now.elr == (1, 2, 3)
    for broker in (2, 1, 3):
        now = begin_life(now, broker, True, terms)
    assert (now.leader, now.isr, now.elr, now.lacking) == (NO_LEADER, (), (), (1, 2, 3))
    living = Terms(brokers(1, 2, 3), min_isr=2)
    assert settle(now, living) is now
    assert settle(now, uncleanly(living)).leader == 1


def test_who_is_in_sync_again_lacks_nothing_any_more() -> None:
    terms = Terms(brokers(1, fenced=[2, 3]))
    lacking = begin_life(state([1, 2, 3], 1, [1]), 2, True, terms)
    assert lacking == state([1, 2, 3], 1, [1], partition_epoch=10, lacking=(2,))
    terms = Terms(brokers(1, 2))
    joins = IsrChange(PARTITION, TOPIC_ID, 4, 10, {1: 11, 2: 12})
    joined = decide_isr_change(lacking, joins, terms)
    assert joined == state([1, 2, 3], 1, [1, 2], partition_epoch=11)


def test_a_replica_that_goes_lacks_nothing_any_more() -> None:
    terms = Terms(brokers(1, 2, 3))
    after = decide_reassignment(state([1, 2], 1, [1], lacking=(2,)), [1], terms)
    assert (after.replicas, after.lacking) == ((1,), ())


LONGEST = [
    pytest.param({1: (4, 90), 2: (4, 100), 3: (4, 95)}, 2, id="the longest of the same epoch"),
    pytest.param({1: (4, 90), 2: (3, 100), 3: (4, 95)}, 3, id="a later epoch goes before a longer log"),
    pytest.param({2: (0, 0)}, 2, id="an empty log before an unknown one"),
    pytest.param({4: (9, 900)}, 1, id="of unknown ones the first; a broker that is away cannot lead"),
]


@pytest.mark.parametrize(("ends", "leader"), LONGEST)
def test_an_unclean_leader_is_the_replica_with_the_longest_log(ends: dict[int, tuple[int, int]], leader: int) -> None:
    log_ends = {broker: LogEnd(0, epoch, offset, offset) for broker, (epoch, offset) in ends.items()}
    terms = Terms(brokers(1, 2, 3, fenced=[4]), unclean=True, log_ends=log_ends)
    lost = state([1, 2, 3, 4], -1, [], lacking=(1, 2, 3))
    assert settle(lost, terms) == state([1, 2, 3, 4], leader, [leader], leader_epoch=5, partition_epoch=10)
    assert decide_election(lost, ElectionType.UNCLEAN, replace(terms, unclean=False)).leader == leader


FAILED_LOGS = [
    pytest.param(
        state([1, 2, 3], 1, [1, 2]),
        state([1, 2, 3], 2, [2], leader_epoch=5, partition_epoch=10, lacking=(1,)),
        id="another one in sync leads",
    ),
    pytest.param(
        state([1, 2, 3], 1, [1], elr=(3,)),
        state([1, 2, 3], 3, [3], leader_epoch=5, partition_epoch=10, lacking=(1,)),
        id="an eligible one leads",
    ),
    pytest.param(
        state([2, 1, 3], 2, [2, 1, 3]),
        state([2, 1, 3], 2, [2, 3], leader_epoch=5, partition_epoch=10, lacking=(1,)),
        id="a follower leaves, and its fetches of before are of an earlier epoch",
    ),
    pytest.param(
        state([2, 1, 3], 2, [2, 3]),
        state([2, 1, 3], 2, [2, 3], leader_epoch=5, partition_epoch=10, lacking=(1,)),
        id="one that was out of sync does not come in by an earlier fetch",
    ),
    pytest.param(
        state([2, 1], 2, [2], elr=(1,)),
        state([2, 1], 2, [2], leader_epoch=5, partition_epoch=10, lacking=(1,)),
        id="it is not eligible any more",
    ),
    pytest.param(
        state([1, 4], 1, [1], elr=(4,)),
        state([1, 4], -1, [], leader_epoch=5, partition_epoch=10, elr=(4,), last_known_leader=1, lacking=(1,)),
        id="one that is away has all, so all wait for it",
    ),
    pytest.param(
        state([1, 2, 3], 1, [1]),
        state([1, 2, 3], 1, [1], leader_epoch=5, partition_epoch=10),
        id="nobody else has what is committed",
    ),
    pytest.param(state([1], 1, [1]), state([1], 1, [1], leader_epoch=5, partition_epoch=10), id="the only replica"),
]


@pytest.mark.parametrize(("before", "after"), FAILED_LOGS)
def test_a_partition_goes_on_in_a_new_epoch_without_the_log_that_failed(
    before: PartitionState, after: PartitionState
) -> None:
    terms = Terms(brokers(1, 2, 3, fenced=[4]), min_isr=2)
    assert counts_on(before, 1, before.leader_epoch)
    assert resign(before, 1, before.leader_epoch, terms) == after
    assert not counts_on(after, 1, before.leader_epoch)
    assert resign(after, 1, before.leader_epoch, terms) is after


def test_where_unclean_leaders_are_allowed_another_one_leads_instead_of_a_failed_log() -> None:
    terms = uncleanly(Terms(brokers(1, 2, 3)))
    after = resign(state([1, 2, 3], 1, [1]), 1, 4, terms)
    assert after == state([1, 2, 3], 2, [2], leader_epoch=5, partition_epoch=10)


def test_who_is_elected_while_its_log_is_away_gives_up_for_those_who_have_theirs() -> None:
    terms = Terms(brokers(1, 2, 3), min_isr=2)
    elected = state([1, 2, 3], 1, [1], elr=(2,), leader_epoch=9)
    assert resign(elected, 1, 4, terms) == state([1, 2, 3], 2, [2], leader_epoch=10, partition_epoch=10, lacking=(1,))
    alone = state([1, 2, 3], 1, [1], leader_epoch=9)
    assert resign(alone, 1, 4, terms) is alone


def test_who_is_taken_for_dead_tries_again_later_where_nobody_else_can_lead() -> None:
    alone = state([1, 2], 1, [1])
    assert resign(alone, 1, 4, Terms(brokers(2, fenced=[1]))) is alone


def uncleanly(terms: Terms) -> Terms:
    return Terms(terms.brokers, terms.min_isr, unclean=True)


def proposal(
    *isr: int, leader_epoch: int = 4, partition_epoch: int = 9, epochs: dict[int, int] | None = None
) -> IsrChange:
    members = {broker: 10 + broker for broker in isr}
    return IsrChange(PARTITION, TOPIC_ID, leader_epoch, partition_epoch, members | (epochs or {}))


REFUSED_CHANGES = [
    (proposal(1, 2, leader_epoch=3), ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch is 4, not 3."),
    (proposal(1, 2, leader_epoch=5), ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch is 4, not 5."),
    (proposal(1, 2, partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION, "The partition epoch is 9, not 8."),
    (proposal(2), ErrorCode.INVALID_REQUEST, "must have the leader 1 in it"),
    (proposal(1, 5), ErrorCode.INVALID_REQUEST, "nobody but the replicas [1, 2, 3, 4]"),
    (proposal(1, 3), ErrorCode.INELIGIBLE_REPLICA, "Broker 3 is not alive."),
    (proposal(1, 4), ErrorCode.INELIGIBLE_REPLICA, "Broker 4 is shutting down."),
    (
        proposal(1, 2, epochs={2: 11}),
        ErrorCode.INELIGIBLE_REPLICA,
        "Broker 2 lives in broker epoch 12; in sync was that of epoch 11.",
    ),
    (proposal(1, 2, epochs={2: UNKNOWN_BROKER_EPOCH}), ErrorCode.INELIGIBLE_REPLICA, "Broker 2 lives in broker epoch"),
]


@pytest.mark.parametrize(("change", "code", "message"), REFUSED_CHANGES)
def test_a_proposal_that_cannot_be_is_refused_as_in_kafka(change: IsrChange, code: ErrorCode, message: str) -> None:
    before = state([1, 2, 3, 4], 1, [1])
    with pytest.raises(ApiError) as refused:
        decide_isr_change(before, change, Terms(brokers(1, 2, fenced=[3], stopping=[4])))
    assert refused.value.code is code
    assert message in str(refused.value)


def test_a_proposal_for_an_earlier_topic_of_that_name_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        check_topic(TopicDocument("t", UUID(int=78), ()), proposal(1))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_the_isr_grows_and_shrinks_as_the_leader_proposes() -> None:
    terms = Terms(brokers(1, 2, 3), min_isr=2)
    grown = decide_isr_change(state([1, 2, 3], 1, [1], elr=(3,)), proposal(1, 2), terms)
    assert grown == state([1, 2, 3], 1, [1, 2], partition_epoch=10)
    shrunk = decide_isr_change(state([1, 2, 3], 1, [1, 2]), proposal(1), terms)
    assert shrunk == state([1, 2, 3], 1, [1], elr=(2,), partition_epoch=10)


def test_a_proposal_of_what_is_there_raises_the_partition_epoch() -> None:
    before = state([1, 2], 1, [1, 2])
    change = proposal(1, 2, epochs={2: UNKNOWN_BROKER_EPOCH})
    assert decide_isr_change(before, change, Terms(brokers(1, 2))) == state([1, 2], 1, [1, 2], partition_epoch=10)


def test_a_leader_that_is_about_to_stop_can_take_its_successor_into_the_isr() -> None:
    after = decide_isr_change(state([1, 2], 1, [1]), proposal(1, 2), Terms(brokers(2, stopping=[1])))
    assert (after.leader, after.isr, after.leader_epoch) == (2, (1, 2), 5)


def test_the_isr_change_that_brings_all_targets_in_completes_a_reassignment() -> None:
    terms = Terms(brokers(1, 2, 3, 4))
    before = msgspec.structs.replace(state([1, 2], 1, [1, 2]), log_dirs=("/a", "/b"))
    going = decide_reassignment(before, [3, 4, 2], terms)
    assert going == state(
        [3, 4, 2, 1],
        1,
        [1, 2],
        partition_epoch=10,
        adding_replicas=(3, 4),
        removing_replicas=(1,),
        log_dirs=("", "", "/b", "/a"),
    )
    partly = decide_isr_change(going, proposal(1, 2, 3, partition_epoch=10), terms)
    assert is_reassigned(partly)
    done = decide_isr_change(partly, proposal(1, 2, 3, 4, partition_epoch=11), terms)
    assert done == state([3, 4, 2], 3, [3, 4, 2], leader_epoch=5, partition_epoch=12, log_dirs=("", "", "/b"))


def test_a_smaller_replication_factor_is_there_at_once_where_the_rest_is_in_sync() -> None:
    terms = Terms(brokers(1, 2, 3), min_isr=2)
    assert decide_reassignment(state([1, 2, 3], 1, [1, 2, 3]), [2], terms) == state(
        [2], 2, [2], leader_epoch=5, partition_epoch=10
    )
    waiting = decide_reassignment(state([1, 2, 3], 1, [1]), [1, 2], terms)
    assert waiting == state([1, 2, 3], 1, [1], partition_epoch=10, removing_replicas=(3,))


def test_another_order_of_the_replicas_is_another_preferred_leader() -> None:
    after = decide_reassignment(state([1, 2], 1, [1, 2]), [2, 1], Terms(brokers(1, 2)))
    assert after == state([2, 1], 1, [1, 2], partition_epoch=10)
    assert wants_preferred(after, Terms(brokers(1, 2)))
    assert not wants_preferred(after, Terms(brokers(1, fenced=[2])))


def test_a_reassignment_is_undone_or_replaced_by_another() -> None:
    terms = Terms(brokers(1, 2, 3, 4))
    going = decide_reassignment(state([1, 2], 1, [1, 2]), [3, 2], terms)
    half = decide_isr_change(going, proposal(1, 2, partition_epoch=10), terms)
    undone = decide_reassignment(half, None, terms)
    assert (set(undone.replicas), undone.isr, is_reassigned(undone)) == ({1, 2}, (2, 1), False)
    other = decide_reassignment(half, [4, 2], terms)
    assert (other.replicas, other.adding_replicas, other.removing_replicas) == ((4, 2, 1), (4,), (1,))


ONLY_THE_ADDED_ONE_IS_IN_SYNC = state([2, 1], 2, [2], adding_replicas=(2,), removing_replicas=(1,))

REFUSED_REASSIGNMENTS = [
    (state([1], 1, [1]), None, True, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment to cancel"),
    (state([1], 1, [1]), [], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "is empty"),
    (state([1], 1, [1]), [2, 2], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a broker more than once"),
    (state([1], 1, [1]), [-1], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker -1; ids are at least 0"),
    (state([1], 1, [1]), [7], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 7; registered are [1, 2]"),
    (state([1], 1, [1]), [1, 2], False, ErrorCode.INVALID_REPLICATION_FACTOR, "factor is 1 and must not change"),
    (ONLY_THE_ADDED_ONE_IS_IN_SYNC, None, True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "in sync are [2]"),
    (ONLY_THE_ADDED_ONE_IS_IN_SYNC, [1], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No one of [1] has all records"),
]


@pytest.mark.parametrize(("before", "targets", "may_change_factor", "code", "message"), REFUSED_REASSIGNMENTS)
def test_a_reassignment_that_cannot_be_is_refused(
    before: PartitionState, targets: list[int] | None, may_change_factor: bool, code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        decide_reassignment(before, targets, Terms(brokers(1, 2)), may_change_factor=may_change_factor)
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
def test_an_election_that_cannot_be_is_refused(before: PartitionState, election: ElectionType, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        decide_election(before, election, Terms(brokers(1, 2, fenced=[3])))
    assert refused.value.code is code


def test_leaders_are_elected_on_request() -> None:
    terms = Terms(brokers(1, 2, fenced=[3]))
    preferred = decide_election(state([1, 2], 2, [1, 2]), ElectionType.PREFERRED, terms)
    assert preferred == state([1, 2], 1, [1, 2], leader_epoch=5, partition_epoch=10)
    unclean = decide_election(state([3, 2], -1, [], elr=(3,), last_known_leader=3), ElectionType.UNCLEAN, terms)
    assert unclean == state([3, 2], 2, [2], leader_epoch=5, partition_epoch=10)


LIVES = [
    ("the machine ran on", "boot", (1, 2), "boot", (1, 2), False, False),
    ("another boot", "boot", (1, 2), "other", (1, 2), False, True),
    ("another boot after a clean shutdown", "boot", (1, 2), "other", (1, 2), True, False),
    ("a directory is missing", "boot", (1, 2), "boot", (1,), True, True),
    ("a directory more", "boot", (1,), "boot", (1, 2), False, False),
    ("nobody knows the boot", "", (1,), "", (1,), False, True),
]


@pytest.mark.parametrize(("_", "boot", "dirs", "new_boot", "new_dirs", "clean", "lacks"), LIVES)
def test_whether_a_life_may_lack_records(
    _: str, boot: str, dirs: Sequence[int], new_boot: str, new_dirs: Sequence[int], clean: bool, lacks: bool
) -> None:
    def life(boot_id: str, numbers: Sequence[int], lacked: bool = False) -> BrokerRegistration:
        ids = tuple(UUID(int=number) for number in numbers)
        return BrokerRegistration(1, UUID(int=1), (), directory_ids=ids, boot_id=boot_id, may_lack_records=lacked)

    assert may_lack_records(life(boot, dirs), life(new_boot, new_dirs), clean) is lacks
    assert may_lack_records(life(boot, dirs, lacked=True), life(new_boot, new_dirs), clean)
    assert may_lack_records(life(boot, dirs), life(new_boot, new_dirs, lacked=True), clean)


def test_a_topics_own_settings_go_before_the_brokers() -> None:
    config = parse_broker_config({"min.insync.replicas": "2", "unclean.leader.election.enable": "true"})
    assert terms_of({}, {}, config) == Terms({}, 2, True)
    own = {"min.insync.replicas": "3", "unclean.leader.election.enable": "false"}
    assert terms_of(own, {}, config) == Terms({}, 3, False)
    assert terms_of({"min.insync.replicas": "many"}, {}, config) == Terms({}, 2, True)


BROKERS = [1, 2, 3, 4]
a_broker = st.sampled_from(BROKERS)


class PartitionLife(RuleBasedStateMachine):
    """One partition through anything that may happen to it.

    `complete` are the brokers that have everything that is committed; what is committed is only certain to be on those
    that were in sync. No election but an unclean one may lose it; a log that failed and comes back leads on with what
    it has where nobody else has more.
    """

    @initialize(
        replicas=st.lists(a_broker, min_size=1, max_size=4, unique=True), min_isr=st.integers(1, 3), dirs=st.booleans()
    )
    def create(self, replicas: list[int], min_isr: int, dirs: bool) -> None:
        self.registered = brokers(*BROKERS)
        self.min_isr = min_isr
        self.state = PartitionState(
            tuple(replicas), replicas[0], 0, tuple(replicas), log_dirs=tuple(f"/{r}" for r in replicas) if dirs else ()
        )
        self.complete = set(replicas)

    @property
    def terms(self) -> Terms:
        return Terms(self.registered, self.min_isr)

    def become(self, after: PartitionState, *, unclean: bool = False, lost: Sequence[int] = ()) -> None:
        """`lost` are brokers whose records are gone, or cannot be used."""
        before, self.state = self.state, after
        if after is before:
            return
        assert after.partition_epoch > before.partition_epoch
        assert (after.leader_epoch > before.leader_epoch) == (after.leader_epoch != before.leader_epoch)
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
        if after.leader_epoch > before.leader_epoch and after.leader != NO_LEADER:
            last_resort = unclean or ({*before.isr, *before.elr} <= set(lost) and after.leader in lost)
            if last_resort and after.leader not in self.complete:
                self.complete = {after.leader}
            assert after.leader in self.complete

    def change(self, broker: int, **fields: object) -> None:
        self.registered = self.registered | {broker: msgspec.structs.replace(self.registered[broker], **fields)}

    @rule(broker=a_broker)
    def dies(self, broker: int) -> None:
        self.change(broker, fenced=True)

    @rule(broker=a_broker)
    def stops(self, broker: int) -> None:
        self.change(broker, is_shutting_down=True)

    @rule()
    def controller_settles(self) -> None:
        self.become(settle(self.state, self.terms))

    @rule(broker=a_broker, lacks=st.booleans())
    def lives_again(self, broker: int, lacks: bool) -> None:
        epoch = self.registered[broker].broker_epoch + 10
        self.change(broker, fenced=True, is_shutting_down=False, broker_epoch=epoch)
        if lacks:
            self.complete.discard(broker)
        if broker in self.state.replicas:
            self.become(begin_life(self.state, broker, lacks, self.terms))
        self.change(broker, fenced=False)

    @precondition(lambda self: self.state.leader != NO_LEADER)
    @rule(members=st.sets(a_broker))
    def leader_proposes(self, members: set[int]) -> None:
        isr = {each: self.registered[each].broker_epoch for each in members | {self.state.leader}}
        change = IsrChange(PARTITION, TOPIC_ID, self.state.leader_epoch, self.state.partition_epoch, isr)
        try:
            after = decide_isr_change(self.state, change, self.terms)
        except ApiError:
            return
        self.complete |= set(change.isr)  # It takes in only who has caught up.
        self.become(after)

    @precondition(
        lambda self: self.state.leader != NO_LEADER and self.terms.suffices(self.state.isr, self.state.replicas)
    )
    @rule()
    def records_are_committed(self) -> None:
        self.complete &= set(self.state.isr)

    @rule(wanted=st.none() | st.lists(a_broker, max_size=4))
    def is_reassigned(self, wanted: list[int] | None) -> None:
        try:
            after = decide_reassignment(self.state, wanted, self.terms)
        except ApiError:
            return
        assert wanted is None or set(wanted) <= set(after.replicas)
        self.become(after)

    @rule(election=st.sampled_from(ElectionType))
    def leaders_are_elected(self, election: ElectionType) -> None:
        try:
            after = decide_election(self.state, election, self.terms)
        except ApiError:
            return
        self.become(after, unclean=election is ElectionType.UNCLEAN)

    @rule(broker=a_broker)
    def log_fails(self, broker: int) -> None:
        """It does not come back before the metadata has heard of it; from then on it may lack records."""
        failed_epoch = self.state.leader_epoch
        after = resign(self.state, broker, failed_epoch, self.terms)
        if not counts_on(after, broker, failed_epoch):
            self.complete.discard(broker)
            self.become(after, lost=[broker])

    @rule(min_isr=st.integers(1, 3))
    def min_isr_is_altered(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.become(settle(self.state, self.terms))

    @invariant()
    def is_sound(self) -> None:
        now = self.state
        assert now.leader == NO_LEADER or now.leader in now.isr
        assert len(set(now.replicas)) == len(now.replicas) > 0
        assert {*now.isr, *now.elr, *now.adding_replicas, *now.removing_replicas} <= set(now.replicas)
        assert not set(now.isr) & set(now.elr)
        assert not now.log_dirs or len(now.log_dirs) == len(now.replicas)
        assert set(now.isr) <= self.complete
        assert set(now.elr) <= self.complete
        assert not now.elr or not self.terms.suffices(now.isr, now.replicas)
        assert set(now.lacking) <= set(now.replicas) - {*now.isr, *now.elr}

    def teardown(self) -> None:
        """Once everybody is back, and stays, there is a leader, or a loss to accept."""
        if not hasattr(self, "state"):
            return
        for broker in BROKERS:
            self.lives_again(broker, False)
        self.controller_settles()
        if self.state.leader == NO_LEADER:
            assert not self.state.isr
            assert not self.state.elr
            assert self.state.last_known_leader in self.state.lacking
            self.leaders_are_elected(ElectionType.UNCLEAN)
        assert self.state.leader != NO_LEADER
        assert not self.state.lacking or self.state.isr


PartitionLife.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestPartitionLife = PartitionLife.TestCase
