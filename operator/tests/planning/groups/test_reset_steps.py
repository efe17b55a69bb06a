"""Which step of a reset comes next."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from barnabas_core.reset_mark import reset_mark
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.groups.group_descriptions import Committed, GroupDescription, Member
from barnabas_operator.planning.groups.reset_step import (
    PATIENCE,
    Commit,
    Done,
    Over,
    Plan,
    Remember,
    ResetLook,
    ResetStep,
    Scale,
    Stop,
    next_step,
    without_plan,
)
from barnabas_operator.planning.groups.target_scale import BeforeReset, TargetScale
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import Reset, ScaleTarget

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
FLIGHTS_0 = TopicPartition("flights", 0)
EMPTY = GroupDescription("Empty", (), {FLIGHTS_0: Committed(7)})
ACTIVE = GroupDescription("Stable", (Member("a", "10.0.0.7"), Member("b", "10.0.0.8")), {FLIGHTS_0: Committed(7)})
BEFORE = BeforeReset("billing", "2026-11-a", 3, since="2026-11-22T11:59:00+00:00")
TARGET = ScaleTarget(name="billing")


def reset(**changes: Any) -> Reset:
    return msgspec.convert({"id": "2026-11-a", "to": {"latest": {}}, **changes}, Reset)


def look(group: GroupDescription, wanted: Reset | None = None, **changes: Any) -> ResetLook:
    return ResetLook("billing", "billing-id", wanted or reset(), None, group, None, None, NOW)._replace(**changes)


def scaled(group: GroupDescription, replicas: int, before: BeforeReset | None = None, **changes: Any) -> ResetLook:
    scale = TargetScale(replicas, "1", before)
    return look(group, reset(whenActive="ScaleDown"), target=TARGET, scale=scale)._replace(**changes)


def marked(*ids: str) -> GroupDescription:
    return EMPTY._replace(committed={FLIGHTS_0: Committed(9, metadata=reset_mark(ids[0], ids[1:]))})


def why(step: ResetStep) -> Refusal:
    assert isinstance(step, Stop)
    return step.why


def test_a_group_without_members_is_reset_at_once_and_one_that_is_not_there_as_well() -> None:
    for policy in ("Refuse", "Wait"):
        assert next_step(look(EMPTY, reset(whenActive=policy))) == Commit()
        assert next_step(look(GroupDescription(), reset(whenActive=policy))) == Commit()
    assert next_step(scaled(EMPTY, 3)) == Commit()


def test_a_reset_that_the_status_or_the_brokers_tell_of_is_not_done_once_more() -> None:
    assert next_step(look(ACTIVE, done_at="2026-11-21T10:00:00Z")) == Done("2026-11-21T10:00:00Z")
    assert next_step(look(marked("2026-11-a"))) == Done("2026-11-22T12:00:00Z")
    assert next_step(look(marked("2026-11-a"), reset(dryRun=True))) == Done("2026-11-22T12:00:00Z")
    assert next_step(look(marked("2026-11-b"))) == Commit()


def test_a_reset_that_others_followed_is_not_done_once_more_when_its_resource_is_restored() -> None:
    assert next_step(look(marked("2026-12-a", "2026-11-a"))) == Done("2026-11-22T12:00:00Z")


def test_one_partition_that_tells_of_the_reset_is_enough_for_all_were_committed_at_once() -> None:
    told = {FLIGHTS_0: Committed(9, metadata="at gate 4"), TopicPartition("flights", 1): Committed(1, metadata="")}
    group = EMPTY._replace(committed={**told, **marked("2026-11-a").committed})
    assert next_step(look(group)) == Done("2026-11-22T12:00:00Z")
    assert next_step(look(EMPTY._replace(committed=told))) == Commit()


def test_a_dry_run_is_planned_whoever_is_in_the_group() -> None:
    assert next_step(look(ACTIVE, reset(dryRun=True))) == Plan()
    assert next_step(scaled(ACTIVE, 3, reset=reset(dryRun=True, whenActive="ScaleDown"))) == Plan()


def test_a_group_with_members_is_left_alone_unless_it_is_said_how() -> None:
    assert why(next_step(look(ACTIVE))) == (
        "GroupActive",
        (
            "group billing-id has 2 members: a at 10.0.0.7, b at 10.0.0.8; stop these members, or set"
            " spec.offsets.reset.whenActive to Wait or ScaleDown"
        ),
    )
    told = "waiting until group billing-id has no members; now it has 2 members: a at 10.0.0.7, b at 10.0.0.8"
    assert why(next_step(look(ACTIVE, reset(whenActive="Wait")))) == ("WaitingForMembers", told)


def test_members_that_join_count_before_they_are_told() -> None:
    joining = GroupDescription("PreparingRebalance", ())
    told = "waiting until group billing-id has no members; now it has members that are joining"
    assert why(next_step(look(joining, reset(whenActive="Wait"))))[1] == told


def test_a_coordinator_that_does_not_answer_is_waited_for() -> None:
    away = GroupDescription(problem="the group's coordinator does not answer")
    assert why(next_step(look(away))) == ("KafkaError", "group billing-id: the group's coordinator does not answer")


def test_a_target_is_remembered_scaled_down_waited_for_and_scaled_up_again() -> None:
    first = next_step(scaled(ACTIVE, 3))
    remembered = BeforeReset("billing", "2026-11-a", 3)
    assert first == Remember(remembered)
    late = NOW + timedelta(days=1)  # The operator was away in between.
    assert next_step(scaled(ACTIVE, 3, remembered, now=late)) == Scale(0)
    assert next_step(scaled(ACTIVE, 0, remembered)) == Remember(replace(remembered, since="2026-11-22T12:00:00Z"))
    assert next_step(scaled(ACTIVE, 3, BEFORE)) == Scale(0), "somebody scaled it up meanwhile"
    assert why(next_step(scaled(ACTIVE, 0, BEFORE))) == (
        "ScaledDown",
        (
            "Deployment billing was scaled from 3 to 0, but group billing-id still has 2 members: "
            "a at 10.0.0.7, b at 10.0.0.8"
        ),
    )
    assert next_step(scaled(EMPTY, 0, BEFORE)) == Commit()
    assert next_step(scaled(marked("2026-11-a"), 0, BEFORE)) == Scale(3)
    assert next_step(scaled(marked("2026-11-a"), 3, BEFORE)) == Remember(None)
    assert next_step(scaled(marked("2026-11-a"), 3)) == Done("2026-11-22T12:00:00Z")


def test_what_people_scaled_meanwhile_stays_as_they_want_it() -> None:
    assert next_step(scaled(marked("2026-11-a"), 5, BEFORE)) == Remember(None)


@pytest.mark.parametrize(
    "changes",
    [
        {"reset": None},
        {"reset": reset(id="2026-11-b", whenActive="ScaleDown")},
        {"reset": reset(whenActive="Wait")},
        {"reset": reset(whenActive="ScaleDown", dryRun=True)},
        {"done_at": "2026-11-22T11:59:30Z"},
    ],
    ids=["none", "another id", "Wait", "dry run", "done"],
)
def test_a_target_is_scaled_up_again_when_the_reset_is_over_or_another_one(changes: dict[str, Any]) -> None:
    assert next_step(scaled(ACTIVE, 0, BEFORE, **changes)) == Scale(3)
    assert next_step(scaled(ACTIVE, 3, BEFORE, **changes)) == Remember(None)


def test_members_that_stay_are_named_and_the_target_is_scaled_up_again() -> None:
    late = NOW + PATIENCE
    given_up = next_step(scaled(ACTIVE, 0, BEFORE, now=late))
    assert isinstance(given_up, Remember)
    assert given_up.before is not None
    assert next_step(scaled(ACTIVE, 0, given_up.before, now=late)) == Scale(3)
    up = replace(given_up.before, is_up=True)
    assert next_step(scaled(ACTIVE, 3, given_up.before, now=late)) == Remember(up)
    members = "2 members: a at 10.0.0.7, b at 10.0.0.8"
    told = (
        "GivenUp",
        (
            f"Deployment billing was scaled to 0, and 5 minutes later group billing-id still had {members}; Deployment"
            " billing was scaled up to 3 again, and no offset was changed; to try again, give the reset another id"
        ),
    )
    for group in (ACTIVE, EMPTY):  # They may be gone by then, or be others.
        assert why(next_step(scaled(group, 3, up, now=late + timedelta(days=1)))) == told
    again = reset(id="2026-11-b", whenActive="ScaleDown")
    assert next_step(scaled(ACTIVE, 3, given_up.before, now=late, reset=again)) == Remember(None)


def test_members_that_run_elsewhere_are_waited_for_and_nothing_is_scaled() -> None:
    assert why(next_step(scaled(ACTIVE, 0))) == (
        "WaitingForMembers",
        (
            "Deployment billing has no replicas, but group billing-id has 2 members: a at 10.0.0.7, b at 10.0.0.8; "
            "stop these members, which are not pods of this workload"
        ),
    )


def test_a_target_that_is_scaled_down_for_another_group_is_left_to_that_one() -> None:
    others = replace(BEFORE, group="audit")
    assert why(next_step(scaled(ACTIVE, 0, others)))[0] == "TargetBusy"
    assert next_step(scaled(marked("2026-11-a"), 0, others)) == Done("2026-11-22T12:00:00Z")
    assert next_step(scaled(ACTIVE, 0, others, reset=None)) == Over()


def test_a_target_that_is_not_there_or_not_said_is_told() -> None:
    missing = Refusal("TargetNotFound", "spec.scaling.target: there is no Deployment billing in this namespace")
    assert next_step(scaled(ACTIVE, 0, scale=missing)) == Stop(missing)
    assert why(next_step(scaled(ACTIVE, 0, scale=None, target=None)))[0] == "InvalidReset"


def test_a_target_does_not_stay_at_0_for_a_reset_that_cannot_be_planned() -> None:
    missing, passing = Refusal("TopicNotFound", "no flights"), Refusal("LeaderNotAvailable", "nobody leads flights-0")
    assert without_plan(scaled(EMPTY, 0, BEFORE), missing) == Remember(replace(BEFORE, gave_up="no flights"))
    assert without_plan(scaled(EMPTY, 0, BEFORE), passing) == Stop(passing)
    late = without_plan(scaled(EMPTY, 0, BEFORE, now=NOW + PATIENCE), passing)
    assert late == Remember(replace(BEFORE, gave_up="nobody leads flights-0"))
    assert without_plan(scaled(EMPTY, 3), missing) == Stop(missing)


def test_a_target_that_was_scaled_up_after_a_reset_was_given_up_is_scaled_to_0_by_whoever_wants() -> None:
    given_up = replace(BEFORE, gave_up="2 members stayed")
    assert next_step(scaled(ACTIVE, 0, given_up)) == Scale(3)
    is_up = replace(given_up, is_up=True)
    assert next_step(scaled(ACTIVE, 3, given_up)) == Remember(is_up)
    for replicas in (3, 0):
        assert why(next_step(scaled(ACTIVE, replicas, is_up))).reason == "GivenUp"
    assert next_step(scaled(ACTIVE, 0, is_up, reset=None)) == Remember(None)


def test_a_target_is_scaled_up_while_nothing_is_to_be_done_and_the_reset_begins_anew_later() -> None:
    unknown = GroupDescription()
    assert next_step(scaled(unknown, 0, BEFORE, is_on_hold=True)) == Scale(3)
    assert next_step(scaled(unknown, 3, BEFORE, is_on_hold=True)) == Remember(None)
    assert next_step(scaled(unknown, 3, is_on_hold=True)) == Over()
    assert next_step(look(EMPTY, is_on_hold=True)) == Over(), "nothing is committed meanwhile"


def test_a_reset_that_was_given_up_is_still_known_after_a_pause() -> None:
    given_up = replace(BEFORE, gave_up="2 members stayed")
    assert next_step(scaled(ACTIVE, 0, given_up, is_on_hold=True)) == Scale(3)
    is_up = replace(given_up, is_up=True)
    assert next_step(scaled(ACTIVE, 3, given_up, is_on_hold=True)) == Remember(is_up)
    assert next_step(scaled(ACTIVE, 3, is_up, is_on_hold=True)) == Over()


def test_a_reset_that_was_given_up_leaves_its_target_to_others() -> None:
    given_up = replace(BEFORE, group="audit", gave_up="2 members stayed")
    assert why(next_step(scaled(ACTIVE, 0, given_up))).reason == "TargetBusy", "it is not up again yet"
    ours = Remember(BeforeReset("billing", "2026-11-a", 3))
    assert next_step(scaled(ACTIVE, 3, given_up)) == ours
    assert next_step(scaled(ACTIVE, 3, replace(given_up, is_up=True))) == ours
