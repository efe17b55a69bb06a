"""The next step of a reset."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from barnabas_core.group_lag import reset_mark
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.groups.reset_plan import Committed, GroupDescription, Member
from barnabas_operator.planning.groups.reset_step import (
    PATIENCE,
    Begin,
    Commit,
    Done,
    Over,
    Plan,
    Remember,
    ResetState,
    ResetStep,
    Scale,
    Stop,
    next_step,
    without_plan,
)
from barnabas_operator.planning.groups.scaling import BeforeReset, TargetScale
from barnabas_operator.resources.consumer_group import Reset, ScaleTarget

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
FLIGHTS_0 = TopicPartition("flights", 0)
EMPTY = GroupDescription("Empty", (), {FLIGHTS_0: Committed(7)})
ACTIVE = GroupDescription("Stable", (Member("a", "10.0.0.7"), Member("b", "10.0.0.8")), {FLIGHTS_0: Committed(7)})
BEFORE = BeforeReset("billing", "2026-11-a", 3, since="2026-11-22T11:59:00+00:00")
TARGET = ScaleTarget(name="billing")


def reset(**changes: Any) -> Reset:
    return msgspec.convert({"id": "2026-11-a", "to": {"latest": {}}, **changes}, Reset)


def look(group: GroupDescription, wanted: Reset | None = None, **changes: Any) -> ResetState:
    return ResetState("billing", "billing-id", wanted or reset(), None, group, None, None, NOW)._replace(**changes)


def scaled(group: GroupDescription, replicas: int, before: BeforeReset | None = None, **changes: Any) -> ResetState:
    scale = TargetScale(replicas, "1", before)
    return look(group, reset(whenActive="ScaleDown"), target=TARGET, scale=scale)._replace(**changes)


def marked(*ids: str) -> GroupDescription:
    return EMPTY._replace(committed={FLIGHTS_0: Committed(9, metadata=reset_mark(ids[0], ids[1:]))})


def why(step: ResetStep) -> Refusal:
    assert isinstance(step, Stop)
    return step.why


def test_a_group_without_members_and_a_missing_group_are_reset_at_once() -> None:
    for policy in ("Refuse", "Wait"):
        assert next_step(look(EMPTY, reset(whenActive=policy))) == Commit()
        assert next_step(look(GroupDescription(), reset(whenActive=policy))) == Commit()
    assert next_step(scaled(EMPTY, 3)) == Commit()


def test_a_reset_recorded_in_the_status_or_in_commits_is_not_repeated() -> None:
    assert next_step(look(ACTIVE, done_at="2026-11-21T10:00:00Z")) == Done("2026-11-21T10:00:00Z")
    assert next_step(look(marked("2026-11-a"))) == Done("2026-11-22T12:00:00Z")
    assert next_step(look(marked("2026-11-a"), reset(dryRun=True))) == Done("2026-11-22T12:00:00Z")
    assert next_step(look(marked("2026-11-b"))) == Commit()


def test_a_reset_is_not_repeated_if_its_resource_is_restored_after_later_resets() -> None:
    assert next_step(look(marked("2026-12-a", "2026-11-a"))) == Done("2026-11-22T12:00:00Z")


def test_the_mark_of_a_reset_on_one_partition_proves_that_it_was_done() -> None:
    told = {FLIGHTS_0: Committed(9, metadata="at gate 4"), TopicPartition("flights", 1): Committed(1, metadata="")}
    group = EMPTY._replace(committed={**told, **marked("2026-11-a").committed})
    assert next_step(look(group)) == Done("2026-11-22T12:00:00Z")
    assert next_step(look(EMPTY._replace(committed=told))) == Commit()


def test_a_dry_run_is_planned_even_if_the_group_has_members() -> None:
    assert next_step(look(ACTIVE, reset(dryRun=True))) == Plan()
    assert next_step(scaled(ACTIVE, 3, reset=reset(dryRun=True, whenActive="ScaleDown"))) == Plan()


def test_a_group_with_members_is_not_reset_and_its_members_are_named() -> None:
    assert why(next_step(look(ACTIVE))) == (
        "GroupActive",
        (
            "group billing-id has 2 members: a at 10.0.0.7, b at 10.0.0.8; stop these members, or set"
            " spec.offsets.reset.whenActive to Wait or ScaleDown"
        ),
    )
    told = "waiting until group billing-id has no members; now it has 2 members: a at 10.0.0.7, b at 10.0.0.8"
    assert why(next_step(look(ACTIVE, reset(whenActive="Wait")))) == ("WaitingForMembers", told)


def test_joining_members_count_before_the_group_lists_them() -> None:
    joining = GroupDescription("PreparingRebalance", ())
    told = "waiting until group billing-id has no members; now it has members that are joining"
    assert why(next_step(look(joining, reset(whenActive="Wait"))))[1] == told


def test_a_reset_waits_for_a_coordinator_that_does_not_answer() -> None:
    away = GroupDescription(problem="the group's coordinator does not answer")
    assert why(next_step(look(away))) == ("KafkaError", "group billing-id: the group's coordinator does not answer")


def test_a_reset_stores_the_replicas_scales_down_commits_and_scales_up_again() -> None:
    first = next_step(scaled(ACTIVE, 3))
    remembered = BeforeReset("billing", "2026-11-a", 3)
    assert first == Remember(remembered)
    late = NOW + timedelta(days=1)  # The operator did not run in between.
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


def test_a_target_that_a_user_scaled_meanwhile_keeps_its_replicas() -> None:
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
def test_a_target_is_scaled_up_again_if_its_reset_ends_or_changes(changes: dict[str, Any]) -> None:
    assert next_step(scaled(ACTIVE, 0, BEFORE, **changes)) == Scale(3)
    assert next_step(scaled(ACTIVE, 3, BEFORE, **changes)) == Remember(None)


def test_a_reset_that_gives_up_names_the_remaining_members_and_scales_up_again() -> None:
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
    for group in (ACTIVE, EMPTY):  # The members may have left since, or be others.
        assert why(next_step(scaled(group, 3, up, now=late + timedelta(days=1)))) == told
    again = reset(id="2026-11-b", whenActive="ScaleDown")
    assert next_step(scaled(ACTIVE, 3, given_up.before, now=late, reset=again)) == Remember(None)


def test_a_reset_waits_for_members_that_are_not_pods_of_its_target() -> None:
    assert why(next_step(scaled(ACTIVE, 0))) == (
        "WaitingForMembers",
        (
            "Deployment billing has no replicas, but group billing-id has 2 members: a at 10.0.0.7, b at 10.0.0.8; "
            "stop these members, which are not pods of this workload"
        ),
    )


def test_a_target_that_is_scaled_down_for_another_group_is_left_unchanged() -> None:
    others = replace(BEFORE, group="audit")
    assert why(next_step(scaled(ACTIVE, 0, others)))[0] == "TargetBusy"
    assert next_step(scaled(marked("2026-11-a"), 0, others)) == Done("2026-11-22T12:00:00Z")
    assert next_step(scaled(ACTIVE, 0, others, reset=None)) == Over()


def test_a_missing_or_undeclared_target_is_reported() -> None:
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


def test_a_user_may_scale_a_target_to_0_after_its_reset_gave_up() -> None:
    given_up = replace(BEFORE, gave_up="2 members stayed")
    assert next_step(scaled(ACTIVE, 0, given_up)) == Scale(3)
    is_up = replace(given_up, is_up=True)
    assert next_step(scaled(ACTIVE, 3, given_up)) == Remember(is_up)
    for replicas in (3, 0):
        assert why(next_step(scaled(ACTIVE, replicas, is_up))).reason == "GivenUp"
    assert next_step(scaled(ACTIVE, 0, is_up, reset=None)) == Remember(None)


def test_a_target_is_scaled_up_while_its_reset_is_on_hold() -> None:
    unknown = GroupDescription()
    assert next_step(scaled(unknown, 0, BEFORE, is_on_hold=True)) == Scale(3)
    assert next_step(scaled(unknown, 3, BEFORE, is_on_hold=True)) == Remember(None)
    assert next_step(scaled(unknown, 3, is_on_hold=True)) == Over()
    assert next_step(look(EMPTY, is_on_hold=True)) == Over(), "nothing is committed meanwhile"


def test_a_reset_that_gave_up_is_still_known_after_a_pause() -> None:
    given_up = replace(BEFORE, gave_up="2 members stayed")
    assert next_step(scaled(ACTIVE, 0, given_up, is_on_hold=True)) == Scale(3)
    is_up = replace(given_up, is_up=True)
    assert next_step(scaled(ACTIVE, 3, given_up, is_on_hold=True)) == Remember(is_up)
    assert next_step(scaled(ACTIVE, 3, is_up, is_on_hold=True)) == Over()


def test_a_reset_that_gave_up_releases_its_target_to_other_groups() -> None:
    given_up = replace(BEFORE, group="audit", gave_up="2 members stayed")
    assert why(next_step(scaled(ACTIVE, 0, given_up))).reason == "TargetBusy", "the target is not scaled up again yet"
    ours = Remember(BeforeReset("billing", "2026-11-a", 3))
    assert next_step(scaled(ACTIVE, 3, given_up)) == ours
    assert next_step(scaled(ACTIVE, 3, replace(given_up, is_up=True))) == ours


def share(epoch: int, *members: Member) -> GroupDescription:
    return GroupDescription("Stable" if members else "Empty", members, {FLIGHTS_0: Committed(7)}, share_epoch=epoch)


def test_a_share_group_is_reset_only_at_the_epoch_that_the_status_has() -> None:
    assert next_step(look(share(4))) == Begin(4)
    assert next_step(look(share(4), begun_epoch=4)) == Commit()
    assert next_step(look(share(5), begun_epoch=4)) == Done("2026-11-22T12:00:00Z"), "the answer was lost"
    assert next_step(look(GroupDescription(), is_declared_share=True)) == Begin(0)
    assert next_step(look(share(1), begun_epoch=0)) == Done("2026-11-22T12:00:00Z")


def test_a_reset_of_a_share_group_waits_while_members_live() -> None:
    member = Member("a", "10.0.0.7")
    assert why(next_step(look(share(4, member)))).reason == "GroupActive"
    assert next_step(scaled(share(4, member), 3)) == Remember(BeforeReset("billing", "2026-11-a", 3))


def test_a_reset_of_a_share_group_is_not_repeated_if_nobody_knows_whether_it_was_carried_out() -> None:
    for group in (share(6), share(5, Member("a", "10.0.0.7")), share(3)):
        unclear = why(next_step(look(group, begun_epoch=4)))
        assert unclear.reason == "ResetUnclear"
        assert f"was 4 when the reset began, and is {group.share_epoch} now" in unclear.message
    given_up = next_step(scaled(share(6), 0, BEFORE, begun_epoch=4))
    assert isinstance(given_up, Remember), "the target must not stay at 0"
    assert given_up.before is not None
    assert "give the reset another id" in given_up.before.gave_up
