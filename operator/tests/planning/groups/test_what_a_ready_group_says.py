"""The message of a ready group's condition Ready, the only one in `kubectl get consumergroups`."""

import pytest

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag, Status
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.groups.group_status import WorkStatus, group_status
from barnabas_operator.planning.groups.reset_plan import NOT_FOUND, GroupSeen, Judged
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec
from barnabas_operator.resources.kind import OFFSETS_RESET, READY, ObjectMeta, condition_of

NOW = "2026-11-22T12:00:00Z"
GROUP = ConsumerGroup(metadata=ObjectMeta(name="billing"), spec=ConsumerGroupSpec())
NOTHING = WorkStatus()
KEPT = Judged("True", "LagObjectiveKept", "")


def message(
    state: str, told: WorkStatus = NOTHING, objective: Judged | None = None, expire_s: float | None = None
) -> str:
    seen = GroupSeen(state=state, lags=GroupLags(None, {}, {}, expire_s))
    ready = condition_of(group_status(GROUP, seen, told, objective, "main", NOW).conditions, READY)
    assert ready is not None
    assert ready.status == "True"
    return ready.message


def reset(status: str, why: str) -> WorkStatus:
    said = condition(GROUP, OFFSETS_RESET, "True" if status == "True" else "False", "GroupActive", why, NOW)
    return WorkStatus(conditions=(said,))


def test_the_message_is_empty_if_everything_is_as_declared() -> None:
    assert message("Stable", reset("True", "the reset a was carried out"), KEPT) == ""


def test_the_message_reports_why_a_reset_is_not_done() -> None:
    assert message("Stable", reset("False", "it has 2 members")) == "OffsetsReset: it has 2 members"


def test_the_message_reports_a_missed_objective_before_a_reset() -> None:
    missed = Judged("False", "LagObjectiveMissed", "200 records to be read")
    told = message("Stable", reset("False", "it has 2 members"), missed)
    assert told == "200 records to be read; OffsetsReset: it has 2 members"


def test_the_message_first_reports_that_no_consumer_has_joined() -> None:
    told = message(NOT_FOUND, reset("False", "there is no such group"))
    assert told == "no consumer has joined or committed yet; OffsetsReset: there is no such group"


@pytest.mark.parametrize(
    ("expire_s", "told"),
    [
        (7 * 86_400.0, ""),
        (86_400.0, ""),
        (86_399.0, "the group has no members, and its offsets expire within 24 h"),
        (7_201.0, "the group has no members, and its offsets expire within 3 h"),
        (7_200.0, "the group has no members, and its offsets expire within 2 h"),
        (59.0, "the group has no members, and its offsets expire within 1 h"),
        (0.0, "the group has no members, and its offsets expire within 1 h"),
    ],
)
def test_the_message_reports_the_remaining_hours_on_the_last_day_of_offsets(expire_s: float, told: str) -> None:
    assert message("Empty", expire_s=expire_s) == told


def test_the_message_reports_expiring_offsets_after_a_missed_objective() -> None:
    missed = Judged("False", "LagObjectiveMissed", "200 records to be read")
    told = "200 records to be read; the group has no members, and its offsets expire within 1 h"
    assert message("Empty", objective=missed, expire_s=60.0) == told


@pytest.mark.parametrize(("held_back", "shown"), [(0, None), (1_234, 1_200)])
def test_the_status_shows_records_held_back_by_open_transactions_if_there_are_any(
    held_back: int, shown: int | None
) -> None:
    seen = GroupSeen(state="Stable", lags=GroupLags(None, {}, {}), held_back=held_back)
    assert group_status(GROUP, seen, NOTHING, None, "main", NOW).held_back == shown


@pytest.mark.parametrize(("unread", "shown"), [((), 0), ((TopicPartition("tasks", 1),), None)])
def test_the_lag_of_a_share_group_is_unknown_until_its_members_have_begun_all_partitions(
    unread: tuple[TopicPartition, ...], shown: int | None
) -> None:
    begun = {TopicPartition("tasks", 0): PartitionLag(10, 10, 0, 10, 0.0, 0.0, Status.OK)}
    seen = GroupSeen(state="Stable", lags=GroupLags(1, begun, {}), shares_partitions=True, silent=unread)
    assert group_status(GROUP, seen, NOTHING, None, "main", NOW).lag == shown
