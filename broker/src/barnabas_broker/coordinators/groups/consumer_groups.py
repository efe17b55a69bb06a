"""The requests to consumer groups of KIP-848, which the group coordinator passes to the modern groups of a shard."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from barnabas_broker.coordinators.groups import classic_members
from barnabas_broker.coordinators.groups.group import Group, GroupState, knows_member_epochs
from barnabas_broker.coordinators.groups.messages import (
    CommitRequest,
    GroupKey,
    GroupRecord,
    JoinReply,
    JoinRequest,
    LeaveResult,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.modern.consumer_heartbeat import (
    JOIN_EPOCH,
    Beat,
    BeatReply,
    BeatWorld,
    heartbeat,
)
from barnabas_broker.coordinators.modern.group import ConsumerGroup, GroupChange, tombstones
from barnabas_broker.coordinators.modern.targets import restart_timeouts
from barnabas_broker.coordinators.runtime.writer import Encodable
from barnabas_core.errors import ApiError, ErrorCode

WAITS_MAX: Final = 4
"""The computations for which a heartbeat waits: topics of regular expressions and an assignment, after running ones."""


def beat(shard: GroupShard, request: Beat, answer: Callable[[BeatReply], object], waits_left: int = WAITS_MAX) -> None:
    """Handle a ConsumerGroupHeartbeat. A first heartbeat makes the group, also from a classic group without members.

    If the group's assignment is computed in turns of the loop, the answer waits for it, and the member is reconciled
    with it: `waits_left` times at most, because other members may begin another computation meanwhile.
    """
    group_id = request.group_id
    group, classic = shard.modern.by_id.get(group_id), shard.tables.groups.get(group_id)
    if group_id in shard.share.groups.by_id:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if group is None and request.epoch != JOIN_EPOCH:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id}")
    first: list[Encodable] = []
    if group is None and classic is not None:
        if classic.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the group {group_id} is being deleted")
        if shard.writer.is_writing(group_id):
            shard.writer.when_idle(group_id, partial(_beat_again, shard, request, answer, waits_left))
            return
        group, first = _in_place_of(shard, classic)
    _decide(shard, group or ConsumerGroup(group_id), request, answer, waits_left, first)
    if group_id in shard.modern.by_id and classic is not None:
        del shard.tables.groups[group_id]
        shard.tables.stored.pop(group_id, None)
        shard.refuse_waiting(group_id, ErrorCode.REBALANCE_IN_PROGRESS)


def _in_place_of(shard: GroupShard, classic: Group) -> tuple[ConsumerGroup | None, list[Encodable]]:
    """Return the consumer group with the members of a classic one, None without members, and what is to be written."""
    group_id, group = classic.group_id, None
    first: list[Encodable] = [GroupRecord(GroupKey(group_id), None)] if group_id in shard.tables.stored else []
    if classic.members:
        world = shard.modern.world(group_id)
        upgrade = classic_members.upgraded(classic, world.settings, world.topics, world.now.wall_ms)
        group, first = upgrade.group, [*first, *upgrade.change.records]
        restart_timeouts(group, world)
    return group, first


def _decide(
    shard: GroupShard,
    group: ConsumerGroup,
    request: Beat,
    answer: Callable[[BeatReply], object],
    waits_left: int,
    first: Sequence[Encodable],
) -> None:
    def decide(change: GroupChange, world: BeatWorld) -> tuple[BeatReply, bool]:
        reply = heartbeat(change, group, request, world)
        return reply, reply.epoch >= JOIN_EPOCH and group.is_computing_for(request.member_id, change)

    def written(error: ErrorCode, decided: tuple[BeatReply, bool]) -> None:
        reply, waits = decided
        if error:
            answer(BeatReply(error))
        elif waits and waits_left:
            later = partial(_answer_both, answer, reply)
            again = partial(_beat_again, shard, request._replace(epoch=reply.epoch), later, waits_left - 1)
            shard.modern.when_computed(group, again, partial(answer, reply))
        else:
            answer(reply)

    shard.modern.run(group, decide, written, first)


def _answer_both(answer: Callable[[BeatReply], object], earlier: BeatReply, later: BeatReply) -> None:
    """Answer with the later reply, which has the assignment of the earlier one if nothing has changed since."""
    answer(later if later.error or later.assignment is not None else later._replace(assignment=earlier.assignment))


def _beat_again(shard: GroupShard, request: Beat, answer: Callable[[BeatReply], object], waits_left: int) -> None:
    if shard.writer.is_closed:
        answer(BeatReply(ErrorCode.NOT_COORDINATOR))
        return
    try:
        beat(shard, request, answer, waits_left)
    except ApiError as error:
        answer(BeatReply(error.code, error.message))


def make_room(shard: GroupShard, group_id: str) -> None:
    """Remove a consumer group without members, if there is one; a classic group takes its place and its offsets."""
    group = shard.modern.by_id.get(group_id)
    if group is None:
        return
    del shard.modern.by_id[group_id]
    shard.writer.submit(group_id, tuple(tombstones(group)), lambda _: None, is_applied=True)
    if group_id in shard.tables.offsets:
        shard.tables.group(group_id)


def check_commit(group: ConsumerGroup, request: CommitRequest) -> ErrorCode:
    """Return an error code for an OffsetCommit or TxnOffsetCommit to a consumer group, NONE if it is allowed."""
    is_transactional = request.producer is not None
    is_anonymous = request.generation < 0 and not request.member_id and request.instance_id is None
    if is_transactional and is_anonymous:
        return ErrorCode.NONE
    partitions = [(offset.topic_id, key.partition) for key, offset in request.offsets]
    knows_epochs = knows_member_epochs(request)
    try:
        group.check_commit(request.member_id, request.generation, partitions)
    except ApiError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH and _is_classic(group, request.member_id):
            return ErrorCode.ILLEGAL_GENERATION
        if knows_epochs or error.code is not ErrorCode.STALE_MEMBER_EPOCH:
            return error.code
        return ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.UNSUPPORTED_VERSION
    needs_epochs = not is_transactional and request.generation >= 0 and not _is_classic(group, request.member_id)
    return ErrorCode.UNSUPPORTED_VERSION if needs_epochs and not knows_epochs else ErrorCode.NONE


def _is_classic(group: ConsumerGroup, member_id: str) -> bool:
    member = group.members.get(member_id)
    return member is not None and member.is_classic


def join(shard: GroupShard, group: ConsumerGroup, request: JoinRequest, answer: Callable[[JoinReply], object]) -> None:
    """Handle the JoinGroup of a classic member of a consumer group. Raises ApiError."""

    def written(error: ErrorCode, reply: JoinReply) -> None:
        answer(JoinReply(error, member_id=request.member_id) if error else reply)

    shard.modern.run(group, lambda change, world: classic_members.join(change, group, request, world), written)


def sync(shard: GroupShard, group: ConsumerGroup, request: SyncRequest, answer: Callable[[SyncReply], object]) -> None:
    """Handle the SyncGroup of a classic member of a consumer group. Raises ApiError."""

    def written(error: ErrorCode, reply: SyncReply) -> None:
        answer(SyncReply(error) if error else reply)

    shard.modern.run(group, lambda _, world: classic_members.sync(group, request, world), written)


def classic_heartbeat(
    shard: GroupShard, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Handle the Heartbeat of a classic member of a consumer group."""
    try:
        return classic_members.classic_heartbeat(
            group, member_id, instance_id, generation, shard.modern.world(group.group_id)
        )
    except ApiError as error:
        return error.code
    finally:
        shard.modern.set_alarm(group)


def leave(shard: GroupShard, group: ConsumerGroup, identities: Sequence[MemberIdentity]) -> list[LeaveResult]:
    """Handle the LeaveGroup of members of a consumer group."""
    results: list[LeaveResult] = []

    def decide(change: GroupChange, world: BeatWorld) -> None:
        results.extend(classic_members.leave(change, group, identities, world))

    shard.modern.run(group, decide, lambda *_: None)
    return results
