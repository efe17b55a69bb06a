"""The message of a group that is ready: `kubectl get consumergroups` shows no other."""

from barnabas_lag.evaluation.lags import GroupLags
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.groups.group_seen import NOT_FOUND, GroupSeen
from barnabas_operator.planning.groups.group_status import group_status
from barnabas_operator.planning.groups.objective import Judged
from barnabas_operator.planning.groups.work_status import WorkStatus
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec
from barnabas_operator.resources.object_meta import OFFSETS_RESET, READY, ObjectMeta, condition_of

NOW = "2026-11-22T12:00:00Z"
GROUP = ConsumerGroup(metadata=ObjectMeta(name="billing"), spec=ConsumerGroupSpec())
NOTHING = WorkStatus()
KEPT = Judged("True", "LagObjectiveKept", "")


def message(state: str, told: WorkStatus = NOTHING, objective: Judged | None = None) -> str:
    seen = GroupSeen(state=state, lags=GroupLags(None, {}, {}))
    ready = condition_of(group_status(GROUP, seen, told, objective, "main", NOW).conditions, READY)
    assert ready is not None
    assert ready.status == "True"
    return ready.message


def reset(status: str, why: str) -> WorkStatus:
    said = condition(GROUP, OFFSETS_RESET, "True" if status == "True" else "False", "GroupActive", why, NOW)
    return WorkStatus(conditions=(said,))


def test_nothing_where_all_is_as_declared() -> None:
    assert message("Stable", reset("True", "the reset a was carried out"), KEPT) == ""


def test_a_reset_that_is_not_done_is_told_with_why() -> None:
    assert message("Stable", reset("False", "it has 2 members")) == "OffsetsReset: it has 2 members"


def test_a_missed_objective_is_told_before_a_reset() -> None:
    missed = Judged("False", "LagObjectiveMissed", "200 records to be read")
    told = message("Stable", reset("False", "it has 2 members"), missed)
    assert told == "200 records to be read; OffsetsReset: it has 2 members"


def test_nobody_yet_is_told_first() -> None:
    told = message(NOT_FOUND, reset("False", "there is no such group"))
    assert told == "no consumer has joined or committed yet; OffsetsReset: there is no such group"
