"""The controller moves partitions to live brokers when brokers die, return, and take over as controller."""

import asyncio
from pathlib import Path

import pytest
from metadata_cluster import HEARTBEAT_MS, SESSION_MS, ClusterOfNodes, a_topic, cluster_at, led

from barnabas_broker.metadata.controller.controller import AWAITED_S
from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
)
from barnabas_broker.metadata.controller.decisions.elections import ElectionType, LogAhead
from barnabas_broker.metadata.controller.decisions.fencing import IsrChange
from barnabas_broker.metadata.membership.log_ends import HeldLog
from barnabas_broker.metadata.model import NO_LEADER, PartitionState
from barnabas_broker.storage.log_dirs.log_dir import Kept
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.deadline import PATIENCE_S


async def test_brokers_join_fenced_and_are_unfenced_by_the_controller(cluster: ClusterOfNodes) -> None:
    first, second = await cluster.start(1, 2)
    assert first.membership.is_controller
    assert not second.membership.is_controller
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    assert second.image.controller_id == 1


async def test_a_suspected_dead_broker_loses_its_partitions(cluster: ClusterOfNodes) -> None:
    _, second, _ = await cluster.start(1, 2, 3)
    await cluster.topics(a_topic("t", led(3, 1, 2), led(1, 2, 3)))
    await cluster.kill(3)
    second.controller.suspect(3)
    await second.until(lambda: second.image.live_brokers() == [1, 2])
    await second.until(lambda: 3 not in second.state("t", 1).isr)
    assert second.state("t", 0) == PartitionState((3, 1, 2), leader=1, leader_epoch=6, isr=(1, 2), partition_epoch=1)
    assert second.state("t", 1) == PartitionState((1, 2, 3), leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=1)


async def test_a_suspected_live_broker_keeps_its_partitions(cluster: ClusterOfNodes) -> None:
    first, second, _ = await cluster.start(1, 2, 3)
    await cluster.topics(a_topic("t", led(3, 1, 2)))
    first.controller.suspect(3)
    second.controller.suspect(3)
    await cluster.topics(a_topic("later", led(1)))  # A result of the suspicion would precede this topic.
    await cluster.kill(2)
    first.controller.suspect(2)
    await first.until(lambda: first.image.live_brokers() == [1, 3])
    await first.until(lambda: first.state("t").isr == (3, 1))
    assert first.state("t").leader == 3


async def test_another_broker_takes_over_immediately_when_the_controller_dies(cluster: ClusterOfNodes) -> None:
    _, second, third = await cluster.start(1, 2, 3)
    await cluster.topics(a_topic("t", led(1, 2, 3)))
    await cluster.kill(1)
    second.controller.suspect(1)
    third.controller.suspect(1)
    await second.until(lambda: second.state("t").leader == 2)
    assert second.image.controller_id in (2, 3)
    assert [second.membership.is_controller, third.membership.is_controller].count(True) == 1
    assert second.image.live_brokers() == [2, 3]


async def test_leases_end_at_once_if_the_machine_of_a_broker_that_has_answered_refuses_connections(
    cluster: ClusterOfNodes,
) -> None:
    first, second, _ = await cluster.start(1, 2, 3)
    await cluster.topics(a_topic("t", led(1, 2, 3)))
    await first.hang()
    cluster.refusing.add(1)
    second.controller.suspect(1, first.epoch)
    await second.until(lambda: second.state("t").leader == 2)
    assert second.image.controller_id in (2, 3)
    assert second.image.live_brokers() == [2, 3]


@pytest.mark.parametrize(("refuses", "answered"), [(False, 0), (True, None), (True, -1)])
async def test_the_lease_of_a_broker_that_hangs_or_starts_lasts_until_it_expires(
    cluster: ClusterOfNodes, refuses: bool, answered: int | None
) -> None:
    first, _, third = await cluster.start(1, 2, 3)
    await third.hang()
    if refuses:
        cluster.refusing.add(3)
    first.controller.suspect(3, None if answered is None else third.epoch + answered)
    await first.beaten()
    assert first.image.live_brokers() == [1, 2, 3]


async def test_the_controller_notices_a_dead_broker_at_its_next_heartbeat(cluster: ClusterOfNodes) -> None:
    first, *_ = await cluster.start(1, 2, 3)
    await cluster.topics(a_topic("t", led(2, 3, 1)))
    await cluster.kill(2)
    first.beat()
    await first.until(lambda: first.state("t").leader == 3)


async def test_a_broker_without_heartbeats_for_a_session_is_fenced_and_unfenced_later(cluster: ClusterOfNodes) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.topics(a_topic("t", led(2, 1)))
    for _ in range(SESSION_MS // HEARTBEAT_MS):
        cluster.clock.passed_ms += HEARTBEAT_MS
        revision = first.image.revision
        await first.membership.try_for_controller()
        first.beat()
        await cluster.topics(a_topic(f"beat {revision}", led(1)))
    await first.until(lambda: first.image.live_brokers() == [1])
    await first.until(lambda: first.state("t").leader == 1)
    epoch = second.epoch
    second.beat()
    await second.until(lambda: second.state("t").leader == 1)
    first.beat()
    first.controller.suspect(1)
    while first.image.live_brokers() == [1]:
        first.beat()
        await cluster.topics(a_topic("another beat", led(1)))
    assert second.epoch == epoch
    assert first.state("t").isr == (1,)


async def test_the_last_in_sync_replica_leads_again_after_its_restart(cluster: ClusterOfNodes) -> None:
    first, _ = await cluster.start(1, 2)
    await cluster.topics(a_topic("t", led(2, 1, isr=[2])))
    await cluster.kill(2)
    first.controller.suspect(2)
    await first.until(lambda: first.state("t").leader == NO_LEADER)
    assert first.state("t") == PartitionState((2, 1), NO_LEADER, 6, (), (2,), 1, last_known_leader=2)
    await cluster.start(2)
    await first.until(lambda: first.state("t").leader == 2)
    assert first.state("t").isr == (2,)
    assert first.state("t").leader_epoch == 7


async def test_a_broker_that_restarts_unnoticed_becomes_a_follower(cluster: ClusterOfNodes) -> None:
    _, second, _ = await cluster.start(1, 2, 3)
    await cluster.topics(a_topic("t", led(3, 1, 2)))
    await cluster.kill(3)
    (third,) = await cluster.start(3)
    assert third.state("t").leader == 1
    assert third.state("t").isr == (1, 2)
    assert third.epoch == 2
    await second.until(lambda: second.image.live_brokers() == [1, 2, 3])


async def test_an_eligible_leader_replica_is_removed_after_a_reboot_of_its_machine(cluster: ClusterOfNodes) -> None:
    first, _, _ = await cluster.start(1, 2, 3)
    await cluster.topics(a_topic("t", led(3, 2, 1, isr=[3, 2]), min_insync_replicas="2"))
    await cluster.kill(3)
    await cluster.kill(2)
    first.controller.suspect(2)
    await first.until(lambda: first.state("t").elr == (3, 2))
    third = await cluster.node(3, boot_id="another boot")
    await third.start()
    await first.until(lambda: first.state("t").elr == (2,))
    assert first.state("t").leader == NO_LEADER
    await cluster.start(2)
    await first.until(lambda: first.state("t").leader == 2)
    assert first.state("t").isr == (2,)


async def test_a_single_broker_leads_its_partitions_again_after_a_restart(cluster: ClusterOfNodes) -> None:
    await cluster.start(1)
    await cluster.topics(a_topic("t", led(1), led(1, epoch=3)))
    await cluster.kill(1)
    (again,) = await cluster.start(1)
    assert (again.state("t"), again.state("t", 1)) == (led(1), led(1, epoch=3))
    assert again.membership.is_controller


async def test_a_single_broker_leads_after_a_power_cut_once_the_loss_is_accepted(
    cluster: ClusterOfNodes,
) -> None:
    await cluster.start(1)
    await cluster.topics(a_topic("t", led(1)))
    await cluster.kill(1)
    again = await cluster.node(1, boot_id="another boot")
    await again.start()
    lost = PartitionState((1,), NO_LEADER, 6, (), partition_epoch=1, last_known_leader=1, lacking=(1,))
    assert again.state("t") == lost
    outcome = await again.writer.elect_leaders(ElectionType.UNCLEAN, None)
    assert outcome == {TopicPartition("t", 0): None}
    assert again.state("t") == PartitionState((1,), 1, 7, (1,), partition_epoch=2)


async def test_only_partitions_without_a_log_lack_records_after_a_log_dir_was_replaced(
    cluster: ClusterOfNodes,
) -> None:
    await cluster.start(1)
    topic = a_topic("t", led(1), led(1))
    await cluster.topics(topic)
    await cluster.kill(1)
    again = await cluster.node(1, dirs=(2,))
    again.held = [HeldLog("t", topic.topic_id, 1, 5, 100, Kept.ALL)]
    await again.start()
    assert (again.state("t", 0).leader, again.state("t", 0).lacking) == (NO_LEADER, (1,))
    assert again.state("t", 1) == led(1)


async def test_a_partition_whose_logs_are_synced_keeps_a_leader_after_a_power_cut(cluster: ClusterOfNodes) -> None:
    await cluster.start(1, 2, 3)
    topic = a_topic("t", led(1, 2, 3))
    await cluster.topics(topic)
    for broker in (3, 2, 1):
        await cluster.kill(broker)
    for broker in (1, 2, 3):
        node = await cluster.node(broker, boot_id="another boot")
        node.held = [HeldLog("t", topic.topic_id, 0, 5, 100, Kept.SYNCED)]
    await cluster.start_together(*cluster.nodes.values())
    first = cluster.nodes[1]
    await first.until(lambda: first.state("t").leader != NO_LEADER)
    assert first.state("t").lacking == ()


async def test_the_longest_log_leads_after_all_brokers_started_with_an_older_copy_of_the_metadata(
    cluster: ClusterOfNodes,
) -> None:
    """A leader elected from the older ISR could get the epoch in which the longest log was written."""
    await cluster.start(1, 2, 3)
    topic = a_topic("t", led(1, 2, 3))
    await cluster.topics(topic)
    for broker in (3, 2, 1):
        await cluster.kill(broker)
    for broker, epoch, end in ((2, 7, 96), (1, 5, 65), (3, 6, 70)):
        node = await cluster.node(broker)
        node.held = [HeldLog("t", topic.topic_id, 0, epoch, end, Kept.ALL)]
    await cluster.start_together(*cluster.nodes.values())
    ahead = cluster.nodes[2]
    await ahead.until(lambda: ahead.image.live_brokers() == [1, 2, 3])
    assert (ahead.state("t").leader, ahead.state("t").leader_epoch) == (NO_LEADER, 5)
    await ahead.writer.overtake({TopicPartition("t", 0): LogAhead(7, waits=True)})
    assert (ahead.state("t").leader, ahead.state("t").isr, ahead.state("t").leader_epoch) == (2, (2,), 8)


async def test_the_longest_log_leads_if_an_older_isr_has_a_replica_that_has_left_it_in_the_same_epoch(
    cluster: ClusterOfNodes,
) -> None:
    await cluster.start(1, 2, 3)
    topic = a_topic("t", led(1, 2, 3))
    await cluster.topics(topic)
    for broker in (3, 2, 1):
        await cluster.kill(broker)
    for broker, end in ((1, 65), (3, 70), (2, 96)):
        node = await cluster.node(broker)
        node.held = [HeldLog("t", topic.topic_id, 0, 5, end, Kept.ALL)]
    await cluster.start_together(*cluster.nodes.values())
    await cluster.nodes[3].until(lambda: cluster.nodes[3].state("t").leader != NO_LEADER)
    assert cluster.nodes[3].state("t").leader == 2


async def test_nobody_is_admitted_after_a_restart_of_all_until_all_are_there_or_a_session_has_passed(
    cluster: ClusterOfNodes,
) -> None:
    await cluster.start(1, 2, 3)
    for broker in (3, 2, 1):
        await cluster.kill(broker)
    first, second = await cluster.node(1), await cluster.node(2)
    await first.join()
    await second.join()
    await first.until(lambda: first.image.brokers[2].broker_epoch == second.membership.registered_epoch)
    cluster.clock.passed_ms += SESSION_MS - 1
    for node in (first, second):
        await node.beaten()
    assert not {1, 2} & first.image.live
    cluster.clock.passed_ms += 1
    first.beat()
    await first.until(lambda: first.image.live_brokers() == [1, 2])


async def test_a_controller_that_restarts_alone_waits_only_until_another_broker_renews_its_lease(
    cluster: ClusterOfNodes,
) -> None:
    _, second = await cluster.start(1, 2)
    second.lose_watch()  # It would become the controller if it saw that the other broker starts again.
    await cluster.kill(1)
    first = await cluster.node(1)
    await first.join()
    await first.beaten()
    assert 1 not in first.image.live
    assert min(each.delay_s for each in first.timers.waiting) <= AWAITED_S
    cluster.clock.passed_ms += 1
    await second.beaten()
    first.beat()
    await first.until(lambda: first.image.live_brokers() == [1, 2])


async def test_a_live_broker_renews_its_lease_at_once_while_the_controller_restarts_alone(
    cluster: ClusterOfNodes,
) -> None:
    _, second, third = await cluster.start(1, 2, 3)
    for node in (second, third):
        node.lose_watch()
    await cluster.kill(1)
    first = await cluster.node(1)
    await first.join()
    await first.beaten()
    assert 1 not in first.image.live
    cluster.clock.passed_ms += 1
    second.watch_again()
    async with asyncio.timeout(PATIENCE_S):
        while min((each.delay_s for each in second.timers.waiting), default=SESSION_MS) > AWAITED_S:
            await asyncio.sleep(0.001)
    cluster.clock.passed_ms += 1
    second.run_timers()
    await second.lease_renewed()
    first.beat()
    await first.until(lambda: first.image.live_brokers() == [1, 2, 3])


async def test_the_replica_with_the_longest_log_leads_after_a_loss_is_accepted(cluster: ClusterOfNodes) -> None:
    first, _, _ = await cluster.start(1, 2, 3)
    topic = a_topic("t", led(1, 2, 3))
    await cluster.topics(topic)
    for broker in (3, 2, 1):
        await cluster.kill(broker)
    for broker, end in ((1, 70), (2, 90), (3, 80)):
        node = await cluster.node(broker, boot_id="another boot")
        node.held = [HeldLog("t", topic.topic_id, 0, 5, end, Kept.SOME)]
    await cluster.start_together(*cluster.nodes.values())
    first = cluster.nodes[1]
    assert first.state("t").lacking == (1, 2, 3)
    await first.writer.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("t", 0)])
    assert (first.state("t").leader, first.state("t").isr, first.state("t").lacking) == (2, (2,), ())


async def test_leaders_change_their_isr_with_current_epochs_only(cluster: ClusterOfNodes) -> None:
    first, second = await cluster.start(1, 2)
    topic = a_topic("t", led(1, 2, isr=[1]), led(1, 2))
    await cluster.topics(topic)
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    grow = IsrChange(TopicPartition("t", 0), topic.topic_id, 5, 0, {1: first.epoch, 2: second.epoch})
    shrink = IsrChange(TopicPartition("t", 1), topic.topic_id, 5, 0, {1: first.epoch})
    outcomes = await first.writer.change_isr([grow, shrink])
    assert outcomes == {
        grow.topic_partition: PartitionState((1, 2), 1, 5, (1, 2), partition_epoch=1),
        shrink.topic_partition: PartitionState((1, 2), 1, 5, (1,), partition_epoch=1),
    }
    assert [first.state("t", 0), first.state("t", 1)] == list(outcomes.values())
    again = (await first.writer.change_isr([grow]))[grow.topic_partition]
    assert isinstance(again, ApiError)
    assert again.code is ErrorCode.INVALID_UPDATE_VERSION


async def test_a_leader_cannot_add_a_previous_incarnation_to_the_isr(cluster: ClusterOfNodes) -> None:
    first, second = await cluster.start(1, 2)
    topic = a_topic("t", led(1, 2, isr=[1]))
    await cluster.topics(topic)
    stale = IsrChange(TopicPartition("t", 0), topic.topic_id, 5, 0, {1: first.epoch, 2: second.epoch})
    await cluster.kill(2)
    (again,) = await cluster.start(2)
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    outcome = (await first.writer.change_isr([stale]))[stale.topic_partition]
    assert isinstance(outcome, ApiError)
    assert outcome.code is ErrorCode.INVALID_UPDATE_VERSION
    current = IsrChange(stale.topic_partition, topic.topic_id, 5, first.state("t").partition_epoch, stale.isr)
    outcome = (await first.writer.change_isr([current]))[stale.topic_partition]
    assert isinstance(outcome, ApiError)
    assert (outcome.code, again.epoch) == (ErrorCode.INELIGIBLE_REPLICA, 2)


async def test_a_broker_that_shuts_down_hands_over_leadership_wherever_possible(cluster: ClusterOfNodes) -> None:
    first, second = await cluster.start(1, 2)
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    await cluster.topics(a_topic("t", led(2, 1), led(2, 1, isr=[2]), led(2), led(1, 2)))
    left = await second.writer.hand_over(2)
    assert left == [TopicPartition("t", 1), TopicPartition("t", 2)]
    assert [second.state("t", number).leader for number in range(4)] == [1, 2, 2, 1]
    assert [second.state("t", number).isr for number in range(4)] == [(1,), (2,), (2,), (1,)]
    assert second.image.brokers[2].is_shutting_down
    await second.membership.leave()
    await first.until(lambda: first.state("t", 2).leader == NO_LEADER)
    (again,) = await cluster.start(2)
    await again.until(lambda: again.state("t", 2).leader == 2)
    assert not again.image.brokers[2].is_shutting_down


async def test_another_broker_takes_over_immediately_when_the_controller_shuts_down(cluster: ClusterOfNodes) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.topics(a_topic("t", led(1, 2)))
    await first.writer.hand_over(1)
    await first.membership.leave()
    await second.until(lambda: second.image.controller_id == 2)
    assert second.state("t").leader == 2


async def test_leadership_returns_to_the_preferred_replicas(tmp_path: Path) -> None:
    async with cluster_at(tmp_path / "m.sqlite", leader_imbalance_check_interval_seconds="60") as cluster:
        first, _ = await cluster.start(1, 2)
        await first.until(lambda: first.image.live_brokers() == [1, 2])
        await cluster.topics(a_topic("t", led(2, 1, leader=1), led(2, 1, isr=[1], leader=1)))
        cluster.clock.passed_ms += 60_000
        first.beat()
        await first.until(lambda: first.state("t").leader == 2)
        assert first.state("t", 1).leader == 1


async def test_preferred_leaders_are_elected_on_request(cluster: ClusterOfNodes) -> None:
    first, _ = await cluster.start(1, 2)
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    await cluster.topics(a_topic("t", led(2, 1, leader=1), led(1, 2), led(2, 1, isr=[1], leader=1)))
    asked = [TopicPartition("t", number) for number in range(4)] + [TopicPartition("u", 0)]
    outcomes = await first.writer.elect_leaders(ElectionType.PREFERRED, asked)
    assert [None if outcome is None else outcome.code for outcome in outcomes.values()] == [
        None,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert first.state("t").leader == 2
    everything = await first.writer.elect_leaders(ElectionType.PREFERRED, None)
    assert list(everything) == [TopicPartition("t", 2)]


async def test_reassignments_are_listed_until_they_complete(cluster: ClusterOfNodes) -> None:
    first, second = await cluster.start(1, 2)
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    topic = a_topic("t", led(1), led(1))
    await cluster.topics(topic)
    moved, kept = TopicPartition("t", 0), TopicPartition("t", 1)
    outcomes = await first.writer.alter_reassignments({moved: [2], kept: [1, 9]})
    assert outcomes[moved] is None
    refused = outcomes[kept]
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert first.writer.reassignment(*moved) is first.state("t")
    for other in (kept, TopicPartition("t", 2), TopicPartition("t", -1), TopicPartition("u", 0)):
        assert first.writer.reassignment(*other) is None
    in_sync = IsrChange(moved, topic.topic_id, 5, 1, {1: first.epoch, 2: second.epoch})
    await first.writer.change_isr([in_sync])
    assert first.state("t") == PartitionState((2,), 2, 6, (2,), partition_epoch=2)
    assert first.writer.reassignment(*moved) is None


async def test_a_broker_with_a_failed_log_resigns_from_leadership(cluster: ClusterOfNodes) -> None:
    first, _ = await cluster.start(1, 2)
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    await cluster.topics(a_topic("t", led(1, 2), led(1)))
    failed_epochs = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 5, TopicPartition("gone", 0): 5}
    await first.writer.resign(failed_epochs)
    assert first.state("t") == PartitionState((1, 2), 2, 6, (2,), partition_epoch=1, lacking=(1,))
    assert first.state("t", 1) == PartitionState((1,), 1, 6, (1,), partition_epoch=1)
    before = first.image.revision
    await first.writer.resign(failed_epochs)
    assert first.image.revision == before


async def test_lowering_min_isr_clears_the_eligible_leader_replicas(cluster: ClusterOfNodes) -> None:
    first, _ = await cluster.start(1, 2)
    state = PartitionState((1, 2), 1, 5, (1,), elr=(2,))
    await cluster.topics(a_topic("t", state, min_insync_replicas="2"))
    lowered = ConfigChange("min.insync.replicas", ConfigOperation.SET, "1")
    await first.writer.alter_configs({ConfigResource(ConfigResourceType.TOPIC, "t"): [lowered]})
    assert first.state("t").elr == ()


async def test_the_controller_retries_at_the_heartbeat_interval_while_the_store_is_unavailable(
    cluster: ClusterOfNodes,
) -> None:
    first, _ = await cluster.start(1, 2)
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    await first.store.close()
    cluster.clock.passed_ms += 10 * SESSION_MS
    for timer in first.timers.waiting:
        timer.cancel()
    first.controller.suspect(2)
    async with asyncio.timeout(PATIENCE_S):
        while not first.timers.waiting:
            await asyncio.sleep(0)
    assert first.timers.waiting[-1].delay_s == cluster.config.broker_heartbeat_interval_ms / 1000


async def test_a_controller_that_was_suspended_does_not_fence_other_brokers_immediately(
    cluster: ClusterOfNodes,
) -> None:
    first, second = await cluster.start(1, 2)
    await first.until(lambda: first.image.live_brokers() == [1, 2])
    cluster.clock.passed_ms += 10 * SESSION_MS  # The machine was suspended.
    first.beats.put_nowait(None)
    await first.lease_renewed()
    first.run_timers()
    await cluster.topics(a_topic("t", led(1)))
    assert first.image.live_brokers() == [1, 2]
    second.beat()
    await second.lease_renewed()
    cluster.clock.passed_ms += SESSION_MS - 1
    first.beat()
    await first.lease_renewed()
    assert first.image.live_brokers() == [1, 2]


async def test_a_thousand_partitions_get_new_leaders_when_a_broker_dies(cluster: ClusterOfNodes) -> None:
    first, second, _ = await cluster.start(1, 2, 3)
    await first.until(lambda: first.image.live_brokers() == [1, 2, 3])
    await cluster.topics(*(a_topic(f"t{number}", led(3, 1, 2)) for number in range(1000)))
    await cluster.kill(3)
    second.controller.suspect(3)
    await second.until(lambda: all(topic.partitions[0].leader == 1 for topic in second.image.topics.values()))
    assert {topic.partitions[0].isr for topic in second.image.topics.values()} == {(1, 2)}
