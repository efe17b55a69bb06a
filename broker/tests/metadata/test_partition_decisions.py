"""Decisions about elections, fencing, new incarnations and failed logs, as tables."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from msgspec.structs import replace
from partition_samples import PARTITION, TOPIC_ID, brokers, state

from barnabas_broker.metadata.controller.decisions.elections import (
    ElectionType,
    Rules,
    choose_leader,
    decide_election,
    rules_of,
)
from barnabas_broker.metadata.controller.decisions.fencing import (
    IsrChange,
    begin_incarnation,
    counts_on,
    decide_isr_change,
    decide_reassignment,
    remove_fenced,
    resign,
    unless_older,
)
from barnabas_broker.metadata.membership.membership import may_lack_records
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration, LogEnd, PartitionState
from barnabas_core.config.broker_config import parse_broker_config

ELECTIONS = [
    pytest.param(state([1, 2, 3], 2, [2, 3]), Rules(brokers(1, 2, 3)), 2, id="the leader stays"),
    pytest.param(state([1, 2, 3], 1, [2, 3]), Rules(brokers(1, 2, 3)), 2, id="the first in sync"),
    pytest.param(state([3, 1, 2], 1, [2, 3]), Rules(brokers(2, fenced=[3, 1])), 2, id="the first that lives"),
    pytest.param(state([1, 2, 3], 1, [], elr=(3,)), Rules(brokers(2, 3, fenced=[1])), 3, id="an eligible one"),
    pytest.param(state([1, 2], 1, [], elr=(1,)), Rules(brokers(2, fenced=[1])), NO_LEADER, id="nobody, not the others"),
    pytest.param(state([1, 2], 1, [], elr=(1,)), Rules(brokers(2, fenced=[1]), unclean=True), 2, id="unclean"),
    pytest.param(state([1, 2], -1, [], last_known_leader=2), Rules(brokers(1, 2)), 2, id="the last known leader"),
    pytest.param(
        state([1, 2], -1, [], elr=(1,), last_known_leader=2),
        Rules(brokers(2, fenced=[1])),
        NO_LEADER,
        id="not the last known leader while one has all",
    ),
    pytest.param(state([1, 2], 1, [1, 2]), Rules(brokers(2, stopping=[1])), 2, id="one that stays"),
    pytest.param(state([1, 2], 2, [1, 2]), Rules(brokers(stopping=[1, 2])), 2, id="all stop: the leader of now"),
    pytest.param(state([1, 2], 3, [1, 2]), Rules(brokers(stopping=[1, 2])), 1, id="all stop: the first"),
]


@pytest.mark.parametrize(("before", "rules", "leader"), ELECTIONS)
def test_the_chosen_leader_is_the_first_best_replica(before: PartitionState, rules: Rules, leader: int) -> None:
    assert choose_leader(before, rules) == leader


SETTLED = [
    pytest.param(
        state([1, 2, 3], 1, [1, 2, 3]),
        Rules(brokers(1, 2, 3), min_isr=2),
        state([1, 2, 3], 1, [1, 2, 3]),
        id="nothing is to be done",
    ),
    pytest.param(
        state([1, 2, 3], 1, [1, 2, 3]),
        Rules(brokers(2, 3, fenced=[1]), min_isr=2),
        state([1, 2, 3], 2, [2, 3], leader_epoch=5, partition_epoch=10),
        id="the leader died",
    ),
    pytest.param(
        state([1, 2, 3], 2, [1, 2, 3]),
        Rules(brokers(2, 3, fenced=[1]), min_isr=2),
        state([1, 2, 3], 2, [2, 3], partition_epoch=10),
        id="a follower died",
    ),
    pytest.param(
        state([1, 2, 3], 2, [2, 3]),
        Rules(brokers(2, 1, fenced=[3]), min_isr=2),
        state([1, 2, 3], 2, [2], elr=(3,), partition_epoch=10),
        id="fewer than min ISR: the leaver stays eligible",
    ),
    pytest.param(
        state([1, 2, 3], 2, [2], elr=(3,)),
        Rules(brokers(3, 1, fenced=[2]), min_isr=2),
        state([1, 2, 3], 3, [3], elr=(2,), leader_epoch=5, partition_epoch=10),
        id="an eligible one leads",
    ),
    pytest.param(
        state([1, 2], 2, [2]),
        Rules(brokers(1, fenced=[2])),
        state([1, 2], -1, [], elr=(2,), leader_epoch=5, partition_epoch=10, last_known_leader=2),
        id="the ISR is empty",
    ),
    pytest.param(
        state([1, 2], 2, [2]),
        Rules(brokers(1, fenced=[2]), unclean=True),
        state([1, 2], 1, [1], leader_epoch=5, partition_epoch=10),
        id="an unclean leader is all there is",
    ),
    pytest.param(
        state([1, 2], 2, [2]),
        Rules(brokers(1, fenced=[2]), min_isr=2, unclean=True),
        state([1, 2], 1, [1], leader_epoch=5, partition_epoch=10),
        id="after an unclean election nobody else is eligible",
    ),
    pytest.param(
        state([1, 2, 3], 1, [1, 2, 3]),
        Rules(brokers(2, 3, stopping=[1]), min_isr=2),
        state([1, 2, 3], 2, [2, 3], leader_epoch=5, partition_epoch=10),
        id="the leader is about to stop",
    ),
    pytest.param(
        state([1, 2], 1, [1]),
        Rules(brokers(2, stopping=[1])),
        state([1, 2], 1, [1]),
        id="the only one in sync leads until it is gone",
    ),
    pytest.param(
        state([1, 2], 1, [1], elr=(2,)),
        Rules(brokers(1, 2), min_isr=1),
        state([1, 2], 1, [1], partition_epoch=10),
        id="min ISR was lowered",
    ),
    pytest.param(
        state([1, 2], 1, [1, 2]),
        Rules(brokers(1), min_isr=2),
        state([1, 2], 1, [1], elr=(2,), partition_epoch=10),
        id="a replica that is not registered",
    ),
]


@pytest.mark.parametrize(("before", "rules", "after"), SETTLED)
def test_partitions_change_leader_isr_and_elr_when_brokers_are_fenced(
    before: PartitionState, rules: Rules, after: PartitionState
) -> None:
    assert remove_fenced(before, rules) == after
    assert remove_fenced(after, rules) is after


def test_a_new_incarnation_leaves_the_isr_and_raises_the_partition_epoch() -> None:
    rules = Rules(brokers(1, 2, fenced=[3]), min_isr=2)
    led_by_it = begin_incarnation(state([3, 1, 2], 3, [3, 1, 2]), 3, False, rules)
    assert led_by_it == state([3, 1, 2], 1, [1, 2], leader_epoch=5, partition_epoch=10)
    outside = begin_incarnation(state([3, 1, 2], 1, [1, 2]), 3, False, rules)
    assert outside == state([3, 1, 2], 1, [1, 2], partition_epoch=10)


def test_a_new_incarnation_that_may_lack_records_is_not_an_eligible_leader() -> None:
    rules = Rules(brokers(2, fenced=[1, 3]), min_isr=2)
    before = state([1, 2, 3], -1, [], elr=(1, 3), last_known_leader=1)
    assert begin_incarnation(before, 3, False, rules).elr == (1, 3)
    assert begin_incarnation(before, 3, True, rules).elr == (1,)


@pytest.mark.parametrize(("log_epoch", "leader", "epoch"), [(4, 1, 5), (5, NO_LEADER, 4)])
def test_an_isr_is_not_trusted_if_a_log_has_a_later_epoch_than_its_copy_of_the_metadata(
    log_epoch: int, leader: int, epoch: int
) -> None:
    before = state([3, 1, 2], 3, [3, 1, 2])
    after = unless_older(before, begin_incarnation(before, 3, False, Rules(brokers(1, 2, fenced=[3]))), log_epoch)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (leader, epoch, 10)
    assert remove_fenced(after, Rules(brokers(1, 2, 3))).leader == leader, "nobody else is elected, either"


def test_the_only_replica_keeps_its_leader_epoch_unless_it_may_lack_records() -> None:
    rules = Rules(brokers(fenced=[1]))
    alone = state([1], 1, [1])
    assert begin_incarnation(alone, 1, False, rules) is alone
    lost = begin_incarnation(alone, 1, True, rules)
    assert lost == state([1], -1, [], leader_epoch=5, partition_epoch=10, last_known_leader=1, lacking=(1,))
    assert remove_fenced(lost, Rules(brokers(1))) is lost, "it waits until the loss is accepted"
    accepted = decide_election(lost, ElectionType.UNCLEAN, Rules(brokers(1)))
    assert accepted == state([1], 1, [1], leader_epoch=6, partition_epoch=11)


def test_a_partition_has_no_leader_if_every_replica_lacks_records() -> None:
    rules = Rules(brokers(fenced=[1, 2, 3]), min_isr=2)
    now = remove_fenced(state([1, 2, 3], 1, [1, 2, 3]), rules)
    assert now.elr == (1, 2, 3)
    for broker in (2, 1, 3):
        now = begin_incarnation(now, broker, True, rules)
    assert (now.leader, now.isr, now.elr, now.lacking) == (NO_LEADER, (), (), (1, 2, 3))
    living = Rules(brokers(1, 2, 3), min_isr=2)
    assert remove_fenced(now, living) is now
    assert remove_fenced(now, uncleanly(living)).leader == 1


def test_a_lacking_replica_is_no_longer_lacking_when_it_is_in_sync() -> None:
    rules = Rules(brokers(1, fenced=[2, 3]))
    lacking = begin_incarnation(state([1, 2, 3], 1, [1]), 2, True, rules)
    assert lacking == state([1, 2, 3], 1, [1], partition_epoch=10, lacking=(2,))
    rules = Rules(brokers(1, 2))
    joins = IsrChange(PARTITION, TOPIC_ID, 4, 10, {1: 11, 2: 12})
    joined = decide_isr_change(lacking, joins, rules)
    assert joined == state([1, 2, 3], 1, [1, 2], partition_epoch=11)


def test_a_removed_replica_is_no_longer_lacking() -> None:
    rules = Rules(brokers(1, 2, 3))
    after = decide_reassignment(state([1, 2], 1, [1], lacking=(2,)), [1], rules)
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
    rules = Rules(brokers(1, 2, 3, fenced=[4]), unclean=True, log_ends=log_ends)
    lost = state([1, 2, 3, 4], -1, [], lacking=(1, 2, 3))
    assert remove_fenced(lost, rules) == state([1, 2, 3, 4], leader, [leader], leader_epoch=5, partition_epoch=10)
    assert decide_election(lost, ElectionType.UNCLEAN, replace(rules, unclean=False)).leader == leader


def test_an_accepted_loss_is_in_an_epoch_above_a_log_that_was_ahead_and_is_gone() -> None:
    """At the next start the ISR would otherwise count as one of an older copy of the metadata."""
    before = state([1, 2], -1, [])
    accepted = decide_election(before, ElectionType.UNCLEAN, Rules(brokers(1), log_ends={2: LogEnd(0, 7, 96, 96)}))
    assert (accepted.leader, accepted.leader_epoch) == (1, 8)
    again = begin_incarnation(accepted, 1, False, Rules(brokers(fenced=[1])))
    assert unless_older(accepted, again, 7) is again


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
def test_a_partition_continues_in_a_new_epoch_after_a_log_failed(before: PartitionState, after: PartitionState) -> None:
    rules = Rules(brokers(1, 2, 3, fenced=[4]), min_isr=2)
    assert counts_on(before, 1, before.leader_epoch)
    assert resign(before, 1, before.leader_epoch, rules) == after
    assert not counts_on(after, 1, before.leader_epoch)
    assert resign(after, 1, before.leader_epoch, rules) is after


def test_another_replica_leads_after_a_log_failed_if_unclean_election_is_enabled() -> None:
    rules = uncleanly(Rules(brokers(1, 2, 3)))
    after = resign(state([1, 2, 3], 1, [1]), 1, 4, rules)
    assert after == state([1, 2, 3], 2, [2], leader_epoch=5, partition_epoch=10)


def test_a_leader_elected_without_its_log_resigns_if_another_replica_can_lead() -> None:
    rules = Rules(brokers(1, 2, 3), min_isr=2)
    elected = state([1, 2, 3], 1, [1], elr=(2,), leader_epoch=9)
    assert resign(elected, 1, 4, rules) == state([1, 2, 3], 2, [2], leader_epoch=10, partition_epoch=10, lacking=(1,))
    alone = state([1, 2, 3], 1, [1], leader_epoch=9)
    assert resign(alone, 1, 4, rules) is alone


def test_a_fenced_leader_with_a_failed_log_stays_without_a_successor() -> None:
    alone = state([1, 2], 1, [1])
    assert resign(alone, 1, 4, Rules(brokers(2, fenced=[1]))) is alone


def uncleanly(rules: Rules) -> Rules:
    return Rules(rules.brokers, rules.min_isr, unclean=True)


INCARNATIONS = [
    ("the machine ran on", "boot", (1, 2), "boot", (1, 2), False, False),
    ("another boot", "boot", (1, 2), "other", (1, 2), False, True),
    ("another boot after a clean shutdown", "boot", (1, 2), "other", (1, 2), True, False),
    ("a directory is missing", "boot", (1, 2), "boot", (1,), True, True),
    ("a directory more", "boot", (1,), "boot", (1, 2), False, False),
    ("nobody knows the boot", "", (1,), "", (1,), False, True),
]


@pytest.mark.parametrize(("_", "boot", "dirs", "new_boot", "new_dirs", "clean", "lacks"), INCARNATIONS)
def test_an_incarnation_may_lack_records_after_an_unclean_reboot_or_a_missing_dir(
    _: str, boot: str, dirs: Sequence[int], new_boot: str, new_dirs: Sequence[int], clean: bool, lacks: bool
) -> None:
    def incarnation(boot_id: str, numbers: Sequence[int], lacked: bool = False) -> BrokerRegistration:
        ids = tuple(UUID(int=number) for number in numbers)
        return BrokerRegistration(1, UUID(int=1), (), directory_ids=ids, boot_id=boot_id, may_lack_records=lacked)

    assert may_lack_records(incarnation(boot, dirs), incarnation(new_boot, new_dirs), clean) is lacks
    assert may_lack_records(incarnation(boot, dirs, lacked=True), incarnation(new_boot, new_dirs), clean)
    assert may_lack_records(incarnation(boot, dirs), incarnation(new_boot, new_dirs, lacked=True), clean)


def test_election_settings_of_a_topic_override_those_of_the_broker() -> None:
    config = parse_broker_config({"min.insync.replicas": "2", "unclean.leader.election.enable": "true"})
    assert rules_of({}, {}, config) == Rules({}, 2, True)
    own = {"min.insync.replicas": "3", "unclean.leader.election.enable": "false"}
    assert rules_of(own, {}, config) == Rules({}, 3, False)
    assert rules_of({"min.insync.replicas": "many"}, {}, config) == Rules({}, 2, True)
