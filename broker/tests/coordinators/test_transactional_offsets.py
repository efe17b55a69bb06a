"""Offsets of a transaction take effect when it commits; until then they are unstable."""

import sys
from collections.abc import Callable
from types import FrameType
from uuid import UUID

import pytest
from coordinator_world import Client, World, stable

from barnabas_broker.coordinators.groups.group import GroupState
from barnabas_broker.coordinators.groups.messages import CommitRequest, CommittedOffset
from barnabas_broker.wire.key_values import Marker, ProducerEpoch
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness import manual_timers

FLIGHTS = TopicPartition("flights", 0)
FLIGHTS_ID = UUID(int=7)


class Copier:
    """A producer that commits offsets of a group in its transactions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[ErrorCode] = []

    def commit(self, offset: int, member: Client | None = None, generation: int | None = None) -> ErrorCode:
        self.begin_commit(offset, member, generation)
        self.world.timers.pass_time()
        return self.told[-1]

    def begin_commit(self, offset: int, member: Client | None = None, generation: int | None = None) -> None:
        stranger = Client(self.world, "stranger")
        of = member or stranger
        request = CommitRequest(
            "readers",
            of.member_id,
            None,
            of.generation if generation is None else generation,
            0,
            [(FLIGHTS, CommittedOffset(offset, topic_id=FLIGHTS_ID))],
            ProducerEpoch(7, 0),
        )
        self.world.coordinator.commit(request, self.told.extend)

    def end(self, *, commit: bool) -> None:
        marker = Marker(7, 0, 0, is_commit=commit)
        self.world.coordinator.end_transaction(0, marker, 0, self.told.append)
        self.world.timers.pass_time()
        assert self.told[-1] is ErrorCode.NONE

    def view(self) -> tuple[int, bool]:
        """Return the group's offset, and whether it is unstable."""
        committed = self.world.coordinator.committed("readers").get(FLIGHTS)
        return committed.offset if committed else -1, FLIGHTS in self.world.coordinator.unstable("readers")


@pytest.fixture(params=[False, True], ids=["live", "loaded"])
def copier(request: pytest.FixtureRequest) -> Copier:
    """Return a copier; in the second run of each test the coordinator crashes before each view of the offsets."""
    copier = Copier(World())
    if request.param:
        view = copier.view

        def after_a_crash() -> tuple[int, bool]:
            copier.world.crash()
            return view()

        copier.view = after_a_crash  # type: ignore[method-assign]
    return copier


def test_offsets_take_effect_when_the_transaction_commits(copier: Copier) -> None:
    assert copier.commit(5) is ErrorCode.NONE
    assert copier.view() == (-1, True)
    copier.end(commit=True)
    assert copier.view() == (5, False)


def test_offsets_of_an_aborted_transaction_are_discarded(copier: Copier) -> None:
    Client(copier.world, "a").commit(("flights", 0, 3))
    copier.commit(5)
    assert copier.view() == (3, True)
    copier.end(commit=False)
    assert copier.view() == (3, False)


def test_a_later_commit_outside_the_transaction_overrides_its_offset(copier: Copier) -> None:
    copier.commit(5)
    Client(copier.world, "a").commit(("flights", 0, 9))
    copier.world.timers.pass_time()
    copier.end(commit=True)
    assert copier.view() == (9, False)


def test_deleting_a_group_removes_its_pending_offsets(copier: Copier) -> None:
    Client(copier.world, "a").commit(("other", 0, 3))
    copier.commit(5)
    copier.world.coordinator.delete_group("readers", copier.told.append)
    copier.world.timers.pass_time()
    copier.end(commit=True)
    assert copier.view() == (-1, False)


def test_a_group_with_only_offsets_of_an_open_transaction_is_listed_as_empty_and_can_be_deleted(copier: Copier) -> None:
    assert copier.commit(5) is ErrorCode.NONE
    assert copier.view() == (-1, True)
    coordinator = copier.world.coordinator
    assert [(group.group_id, group.state) for group in coordinator.list_groups()] == [("readers", GroupState.EMPTY)]
    assert coordinator.describe("readers").state is GroupState.EMPTY
    coordinator.delete_group("readers", copier.told.append)
    copier.world.timers.pass_time()
    assert copier.told[-1] is ErrorCode.NONE
    copier.end(commit=True)
    assert copier.view() == (-1, False)
    assert not copier.world.coordinator.list_groups()


def test_a_group_whose_first_transactional_offsets_cannot_be_stored_does_not_exist() -> None:
    copier = Copier(World())
    copier.world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert copier.commit(5) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not copier.world.coordinator.list_groups()


def test_a_group_keeps_offsets_of_an_open_transaction_when_a_client_has_asked_for_a_member_id_and_not_joined() -> None:
    copier = Copier(World())
    assert copier.commit(5) is ErrorCode.NONE
    Client(copier.world, "hesitant").join(requires_known_member_id=True)
    copier.world.timers.pass_time(20)
    assert copier.world.coordinator.describe("readers").state is GroupState.EMPTY


def test_pending_offsets_of_a_deleted_topic_are_discarded(copier: Copier) -> None:
    copier.commit(5)
    copier.world.delete(("flights", FLIGHTS_ID))
    copier.world.timers.pass_time()
    assert copier.view() == (-1, False)
    copier.end(commit=True)
    assert copier.view() == (-1, False)


def test_offsets_that_are_being_stored_are_unstable() -> None:
    copier = Copier(World())
    copier.begin_commit(5)
    assert copier.view() == (-1, True)
    copier.world.timers.pass_time()
    assert copier.view() == (-1, True)


def test_a_producer_commits_only_for_a_member_of_the_current_generation() -> None:
    world = World()
    copier, member = Copier(world), Client(world, "a")
    stable(world, member)
    assert copier.commit(5, member) is ErrorCode.NONE
    assert copier.commit(5, member, generation=member.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert copier.commit(5) is ErrorCode.NONE
    member.leave()
    assert copier.commit(5, member) is ErrorCode.UNKNOWN_MEMBER_ID


GROUPS = 400


def _calls_of_turns(world: World) -> list[int]:
    """Return the number of calls in each turn, without those of the harness, until all work is done."""
    counts: list[int] = []
    goes_on = True

    def called(frame: FrameType, event: str, _arg: object) -> None:
        counts[-1] += event == "call" and frame.f_code.co_filename != manual_timers.__file__

    while goes_on:
        counts.append(0)
        sys.setprofile(called)
        try:
            goes_on = world.timers.turn()
        finally:
            sys.setprofile(None)
    return counts


def _with_pending_offsets(groups: int) -> World:
    """Return a world where each of so many groups has a committed offset, and another in an open transaction."""
    world = World()
    for number in range(groups):
        for topic, producer in (("others", None), ("flights", ProducerEpoch(7, 0))):
            offset = CommittedOffset(5, topic_id=FLIGHTS_ID if producer else None)
            request = CommitRequest(f"g{number}", "", None, -1, 0, [(TopicPartition(topic, 0), offset)], producer)
            world.coordinator.commit(request, lambda _: None)
    world.timers.pass_time()
    return world


def _delete_the_topic(world: World) -> None:
    world.delete(("flights", FLIGHTS_ID))


def _expire(world: World) -> None:
    world.coordinator.start()
    world.clock.passed_ms += world.config.offsets_retention_check_interval_ms


@pytest.mark.parametrize("sweep", [_delete_the_topic, _expire])
def test_work_on_pending_offsets_grows_with_their_number_and_not_its_square(sweep: Callable[[World], None]) -> None:
    few, many = _with_pending_offsets(GROUPS // 4), _with_pending_offsets(GROUPS)
    sweep(few)
    sweep(many)
    of_few, of_many = _calls_of_turns(few), _calls_of_turns(many)
    assert sum(of_many) < 5 * sum(of_few)
    assert max(of_many) < 4_000


def test_asking_for_the_unstable_offsets_of_a_group_reads_no_other_groups() -> None:
    world = _with_pending_offsets(GROUPS)
    called = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal called
        called += event == "call"

    sys.setprofile(count)
    try:
        assert world.coordinator.unstable("g7") == {FLIGHTS}
    finally:
        sys.setprofile(None)
    assert called < 40
