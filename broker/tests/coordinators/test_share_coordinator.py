"""The share coordinator stores the state of share-partitions in a log that is never compacted, and prunes the log."""

from uuid import UUID

import pytest
from share_state_world import GROUP, TASKS, WRITE_TIMEOUT_MS, ShareStateWorld, acknowledged, available, change

from barnabas_broker.coordinators.share_state.share_state import (
    ReadEntry,
    ShareOutcome,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from barnabas_broker.server.metrics.group_families import share_state_families
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

FIVE_MINUTES_MS = 300_000
OK = ErrorCode.NONE


def test_a_new_coordinator_knows_what_was_written() -> None:
    world = ShareStateWorld()
    assert world.initialize(state_epoch=3, start_offset=-1) == ShareOutcome()
    assert world.read(leader_epoch=2) == ShareOutcome(state_epoch=3, start_offset=-1)
    entry = change(acknowledged(5, 6), available(7, 7), start=5, complete=2, state_epoch=3, leader_epoch=2)
    assert world.write(entry).error is OK
    assert world.write(change(acknowledged(7, 7, 2), start=8, state_epoch=3, leader_epoch=2)).error is OK
    before = world.states
    world.fail_over()
    assert world.states == before
    expected = ShareOutcome(state_epoch=3, start_offset=8)
    assert world.read(leader_epoch=2) == expected
    assert world.summary() == expected._replace(leader_epoch=2, delivery_complete_count=0)


def test_an_earlier_leader_is_fenced_once_the_next_one_has_read() -> None:
    world = ShareStateWorld()
    world.initialize()
    world.read(leader_epoch=4)
    assert world.write(change(acknowledged(0, 0), leader_epoch=3)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert world.read(leader_epoch=3).error is ErrorCode.FENCED_LEADER_EPOCH
    world.fail_over()
    assert world.write(change(acknowledged(0, 0), leader_epoch=3)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_writes_of_one_share_partition_may_be_under_way_together_and_the_start_offset_never_goes_back() -> None:
    world = ShareStateWorld()
    world.initialize()
    world.log.holding = True
    answers: list[ShareOutcome] = []
    for start in (4, 2, 6):
        entry = change(acknowledged(start, start), start=start, complete=start)
        world.coordinator.write(GROUP, entry, answers.append)
        world.timers.pass_time()
    assert answers == []
    assert world.state().start_offset == 0, "what is not committed is not served"
    world.log.commit()
    world.timers.pass_time()
    assert [each.error for each in answers] == [OK] * 3
    assert world.state().start_offset == 6
    world.fail_over()
    assert world.state().start_offset == 6


def test_a_read_answers_with_committed_batches_only() -> None:
    world = ShareStateWorld()
    world.initialize()
    world.log.holding = True
    answers: list[ShareOutcome] = []
    world.coordinator.write(GROUP, change(acknowledged(0, 0)), answers.append)
    world.coordinator.read(GROUP, ReadEntry(TASKS, 0), answers.append)
    world.coordinator.read(GROUP, ReadEntry(TASKS, 1), answers.append)
    world.timers.pass_time()
    assert answers == []
    world.log.commit()
    world.timers.pass_time()
    assert [each.error for each in answers] == [OK, OK, ErrorCode.FENCED_LEADER_EPOCH]
    assert answers[1].batches == (acknowledged(0, 0),)


def test_a_read_that_waits_is_answered_when_another_broker_becomes_the_coordinator() -> None:
    world = ShareStateWorld()
    world.initialize()
    world.log.holding = True
    answers: list[ShareOutcome] = []
    world.coordinator.write(GROUP, change(acknowledged(0, 0)), answers.append)
    world.coordinator.read(GROUP, ReadEntry(TASKS, 0), answers.append)
    world.timers.pass_time()
    world.coordinator.runtime.resign(0)
    assert [each.error for each in answers] == [ErrorCode.NOT_COORDINATOR] * 2
    assert world.read().error is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),  # The disk is full.
    ],
)
def test_a_write_that_cannot_be_appended_changes_nothing(failing: ErrorCode, error: ErrorCode) -> None:
    world = ShareStateWorld()
    world.initialize()
    world.log.failing = failing
    assert world.write(change(acknowledged(0, 3), start=4)).error is error
    world.log.failing = None
    assert world.write(change(acknowledged(0, 0), start=0)).error is OK
    assert world.state().start_offset == 0
    assert world.state().batches == [acknowledged(0, 0)]


def test_a_write_that_times_out_counts_if_it_is_committed_later() -> None:
    world = ShareStateWorld()
    world.initialize()
    world.log.holding = True
    answers: list[ShareOutcome] = []
    world.coordinator.write(GROUP, change(acknowledged(0, 3), start=4), answers.append)
    world.timers.pass_time(WRITE_TIMEOUT_MS / 1000 + 1)
    assert [each.error for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.coordinator.write(GROUP, change(acknowledged(4, 4), start=2), answers.append)
    world.timers.pass_time()
    world.log.commit()
    world.timers.pass_time()
    assert world.state().start_offset == 4, "the later write found the earlier one in the log"
    world.fail_over()
    assert world.state().start_offset == 4


@pytest.mark.parametrize("survivors", [0, 1])
def test_a_write_whose_end_the_failed_broker_did_not_learn_is_kept_or_lost_as_a_whole(survivors: int) -> None:
    world = ShareStateWorld()
    world.initialize()
    world.log.holding = True
    answers: list[ShareOutcome] = []
    world.coordinator.write(GROUP, change(acknowledged(0, 3), start=4), answers.append)
    world.timers.pass_time()
    world.log.holding = False
    world.fail_over(survivors)
    assert [each.error for each in answers] == [ErrorCode.NOT_COORDINATOR]
    assert world.state().start_offset == 4 * survivors


def test_deleted_states_do_not_come_back() -> None:
    world = ShareStateWorld()
    world.initialize(state_epoch=9)
    assert world.delete().error is OK
    assert world.delete().error is OK, "deleting what is deleted succeeds"
    world.fail_over()
    assert world.states == {}
    assert world.initialize(state_epoch=1).error is OK, "no epoch is left to fence a group that comes again"


def test_states_of_deleted_topics_are_deleted_at_once_or_when_the_partition_is_loaded() -> None:
    world = ShareStateWorld()
    other = TopicIdPartition(UUID(int=5), 0)
    third = TopicIdPartition(UUID(int=6), 0)
    for each in (TASKS, other, third):
        world.initialize(partition=each)
    world.coordinator.on_topics_deleted({TASKS.topic_id})
    world.timers.pass_time()
    assert {key.topic_id for key in world.states} == {other.topic_id, third.topic_id}
    world.deleted = {other.topic_id}
    world.fail_over()
    world.timers.pass_time()
    assert {key.topic_id for key in world.states} == {third.topic_id}


def test_after_many_updates_a_write_makes_a_snapshot() -> None:
    world = ShareStateWorld({"share.coordinator.snapshot.update.records.per.snapshot": "3"})
    world.initialize()
    for offset in range(4):
        world.write(change(acknowledged(offset, offset), start=0, complete=offset + 1))
    kinds = [key[1] for key, _ in world.log.records]
    assert kinds == [0, 1, 1, 1, 0]
    assert world.state().batches == [acknowledged(0, 3)]
    assert world.state().snapshot_epoch == 1


def durable(world: ShareStateWorld) -> dict[SharePartitionKey, ShareState]:
    """Return what the records define, without the place of the records in the log."""
    return {key: state._replace(log_offset=0, batches=tuple(state.batches)) for key, state in world.states.items()}


def other_partitions(count: int) -> list[TopicIdPartition]:
    return [TopicIdPartition(TASKS.topic_id, number) for number in range(1, count + 1)]


def test_states_that_do_not_change_are_written_again_while_another_changes_and_the_log_is_pruned() -> None:
    world = ShareStateWorld()
    for each in (TASKS, *other_partitions(600)):
        world.initialize(partition=each)
    world.timers.pass_time(FIVE_MINUTES_MS / 1000)
    world.write(change(acknowledged(0, 0)))
    world.timers.pass_time(FIVE_MINUTES_MS / 1000 + 1)
    assert world.log.start_offset >= 601
    before = durable(world)
    world.fail_over()
    assert durable(world) == before


def test_a_log_in_which_nothing_changes_does_not_grow() -> None:
    world = ShareStateWorld()
    for each in (TASKS, *other_partitions(5)):
        world.initialize(partition=each)
    world.timers.pass_time(3 * FIVE_MINUTES_MS / 1000)
    size = world.log.end_offset(0)
    world.timers.pass_time(20 * FIVE_MINUTES_MS / 1000)
    assert world.log.end_offset(0) == size


def test_records_that_a_power_cut_brings_back_change_nothing() -> None:
    world = ShareStateWorld({"share.coordinator.snapshot.update.records.per.snapshot": "2"})
    for each in (TASKS, *other_partitions(3)):
        world.initialize(partition=each)
    for offset in range(20):
        world.write(change(acknowledged(offset, offset), start=offset, complete=1))
    world.delete(other_partitions(1)[0])
    world.timers.pass_time(2 * FIVE_MINUTES_MS / 1000 + 1)
    pruned_to = world.log.start_offset
    assert pruned_to > 0
    expected = durable(world)
    for start_offset in range(pruned_to + 1):
        world.log.start_offset = start_offset
        world.fail_over()
        assert durable(world) == expected, start_offset


def test_a_log_is_pruned_after_the_last_state_was_deleted() -> None:
    world = ShareStateWorld()
    world.initialize()
    world.write(change(acknowledged(0, 0)))
    world.delete()
    world.timers.pass_time(FIVE_MINUTES_MS / 1000 + 1)
    assert world.log.start_offset == 2, "the tombstone itself may stay"


def test_a_damaged_record_is_left_out_and_counted() -> None:
    world = ShareStateWorld()
    world.initialize()
    world.log.write(0, [(b"\0\0damaged", b"\0\0"), (b"\0\1\0\1", None)])
    world.fail_over(survivors=1)
    assert world.coordinator.runtime.left_out_count() == 2
    assert world.read().error is OK


def test_a_state_with_thousands_of_batches_is_loaded_and_served() -> None:
    world = ShareStateWorld()
    world.initialize()
    found = [StateBatch(2 * number, 2 * number, 2, 1) for number in range(4000)]
    assert world.write(change(*found, complete=4000)).error is OK
    world.fail_over()
    assert list(world.read().batches) == found


def test_requests_while_the_partition_is_loaded_get_an_error_that_is_tried_again() -> None:
    world = ShareStateWorld()
    world.coordinator.runtime.resign(0)
    world.coordinator.runtime.elect(0, 5)
    answers: list[ShareOutcome] = []
    world.coordinator.write(GROUP, change(), answers.append)
    assert answers[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_metrics_report_partitions_writes_and_the_pruned_offset() -> None:
    world = ShareStateWorld()
    world.initialize()
    world.write(change(acknowledged(0, 0)))
    world.delete()
    world.timers.pass_time(FIVE_MINUTES_MS / 1000 + 1)
    samples = {
        f"{family.name}{{{sample.labels}}}": sample.value
        for family in share_state_families(world.coordinator)
        for sample in filter(None, family.samples())
    }
    assert samples['barnabas_share_coordinator_partitions{state="active"}'] == 1
    assert samples["kafka_coordinator_share_writes_total{}"] == 3
    assert samples['kafka_coordinator_share_last_pruned_offset{partition="0"}'] == 2
