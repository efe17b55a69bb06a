"""A reset is committed in one piece or not at all."""

import pytest

from barnabas_core.group_lag import MARK_LENGTH_MAX
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.groups.reset_plan import LogEnds, Move, ResetPlan, refuse_size

LOG = LogEnds(0, 10)


def plan(partitions: int) -> ResetPlan:
    return ResetPlan(tuple(Move(TopicPartition("flights", number), 3, 5, LOG) for number in range(partitions)))


def test_a_reset_too_large_for_one_commit_is_refused_with_the_allowed_partitions() -> None:
    mark = "m" * 32
    assert refuse_size(plan(3_000), "billing", mark) is None
    refusal = refuse_size(plan(15_000), "billing", mark)
    assert refusal is not None
    assert refusal.reason == "TooManyPartitions"
    assert refusal.message == (
        "the reset covers 15,000 partitions; allowed: about 3,574 partitions in one commit; name fewer topics in "
        "spec.offsets.reset.topics, and reset the other topics later with another id"
    )
    assert refuse_size(plan(3_574), "billing", mark) is None
    assert refuse_size(plan(1_100), "g" * 10, "m" * MARK_LENGTH_MAX) is None


@pytest.mark.parametrize(("to", "skipped", "again"), [(0, 0, 8), (5, 0, 3), (10, 2, 0)])
def test_records_that_a_share_group_has_finished_behind_its_start_offset_count(
    to: int, skipped: int, again: int
) -> None:
    move = Move(TopicPartition("flights", 0), 0, to, LOG, lag=2)
    assert (ResetPlan((move,)).skipped, ResetPlan((move,)).again) == (skipped, again)
