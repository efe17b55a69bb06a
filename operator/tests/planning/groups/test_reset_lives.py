"""Resets under random events: operators die at any write, members come and go, statuses are lost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.group_lag import reset_mark
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.groups.reset_plan import (
    Committed,
    GroupDescription,
    GroupDescriptions,
    LogEnds,
    Member,
    ResetPlan,
    plan_reset,
)
from barnabas_operator.planning.groups.reset_step import (
    GIVEN_UP,
    WAITING_FOR_MEMBERS,
    Commit,
    Done,
    Remember,
    ResetState,
    Scale,
    Stop,
    next_step,
    resets_of,
)
from barnabas_operator.planning.groups.scaling import BeforeReset, TargetScale
from barnabas_operator.resources.consumer_group import Reset, ScaleTarget

START = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
WHERE = TopicPartition("flights", 0)
REPLICAS = 3
LOOKS_TO_END = 40


class World:
    """A group, its target, and the status that an operator wrote last."""

    def __init__(self, stubborn: bool) -> None:
        self.now = START
        self.replicas = REPLICAS
        self.before: BeforeReset | None = None
        self.members = REPLICAS
        self.stubborn = stubborn
        """True if a member that runs elsewhere never leaves."""
        self.metadata = ""
        self.commits = 0
        self.done_at: str | None = None

    def look(self, reset: Reset) -> ResetState:
        members = tuple(Member(f"m{number}", "here") for number in range(self.members + self.stubborn))
        state = "Stable" if members else "Empty"
        group = GroupDescription(state, members, {WHERE: Committed(7, metadata=self.metadata)})
        scale = TargetScale(self.replicas, "1", self.before)
        return ResetState(
            "billing", "billing", reset, self.done_at, group, ScaleTarget(name="billing"), scale, self.now
        )

    def step(self, reset: Reset) -> bool:
        """Take one step and apply what it writes; return True if nothing is left to do."""
        step = next_step(look := self.look(reset))
        if isinstance(step, Commit):
            assert not look.group.is_active
            self.commits += 1
            self.metadata = reset_mark(reset.id, resets_of(look.group))
        elif isinstance(step, Scale):
            self.replicas = step.replicas
        elif isinstance(step, Remember):
            self.before = step.before
        elif isinstance(step, Done):
            self.done_at = step.at
            return True
        return isinstance(step, Stop) and step.why.reason in (GIVEN_UP, WAITING_FOR_MEMBERS)

    def happen(self, what: str) -> None:
        if what == "pods follow":
            self.members = self.replicas
        elif what == "a minute":
            self.now += timedelta(minutes=1)
        elif what == "the status is lost":
            self.done_at = None


HAPPENINGS = st.lists(st.sampled_from(["step", "pods follow", "a minute", "the status is lost"]), max_size=60)


@given(HAPPENINGS, st.booleans())
def test_a_reset_is_done_once_and_the_target_gets_its_replicas_back(happenings: list[str], stubborn: bool) -> None:
    world, reset = World(stubborn), _reset({"latest": {}}, whenActive="ScaleDown")
    for each in happenings:
        if each == "step":
            world.step(reset)  # The operator may die right after it: nothing else is kept.
        else:
            world.happen(each)
    for _ in range(LOOKS_TO_END):
        world.happen("pods follow")
        world.happen("a minute")
        world.step(reset)
    assert world.step(reset)
    assert world.replicas == REPLICAS
    gave_up = world.before is not None and world.before.gave_up != ""
    assert world.commits == (0 if gave_up else 1)
    assert gave_up or not stubborn
    assert gave_up or world.before is None


def _reset(to: dict[str, Any], **changes: Any) -> Reset:
    return msgspec.convert({"id": "a", "to": to, **changes}, Reset)


LOGS = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)).map(lambda ends: LogEnds(min(ends), max(ends)))
OFFSETS = st.integers(0, 2**41)
TARGETS = st.one_of(
    st.sampled_from([{"earliest": {}}, {"latest": {}}, {"datetime": "2026-11-01T00:00:00Z"}]),
    st.integers(-(2**41), 2**41).map(lambda by: {"shiftBy": by}),
)


@given(TARGETS, st.lists(st.tuples(LOGS, OFFSETS), min_size=1, max_size=8), st.data())
def test_every_offset_after_a_reset_is_in_its_log_and_each_record_counts_once(
    to: dict[str, Any], parts: list[tuple[LogEnds, int]], data: st.DataObject
) -> None:
    where = [TopicPartition("flights", number) for number in range(len(parts))]
    logs = {each: log for each, (log, _) in zip(where, parts, strict=True)}
    committed = {each: Committed(offset) for each, (_, offset) in zip(where, parts, strict=True)}
    found = {each: data.draw(st.none() | st.integers(log.start, log.end)) for each, log in logs.items()}
    facts = GroupDescriptions({"billing": GroupDescription("Empty", (), committed)}, {"flights": len(parts)}, logs)
    plan = plan_reset(_reset(to), "billing", facts, found)
    assert isinstance(plan, ResetPlan)
    assert [each.partition for each in plan.moves] == where
    assert all(log.start <= each.to <= log.end for each, log in zip(plan.moves, logs.values(), strict=True))
    assert plan.skipped - plan.again == sum(each.delta for each in plan.moves)
    records = sum(log.end - log.start for log in logs.values())
    assert plan.skipped + plan.again <= records
