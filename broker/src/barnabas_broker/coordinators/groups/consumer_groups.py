"""The requests to consumer groups of KIP-848, which the group coordinator passes to the modern groups of a shard."""

from collections.abc import Callable
from functools import partial

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import CommitRequest
from barnabas_broker.coordinators.groups.offsets import knows_member_epochs
from barnabas_broker.coordinators.groups.records import GroupKey, GroupRecord
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.modern.consumer_group import ConsumerGroup
from barnabas_broker.coordinators.modern.consumer_heartbeat import JOIN_EPOCH, Beat, BeatReply, heartbeat
from barnabas_broker.coordinators.modern.group import tombstones
from barnabas_core.errors import ApiError, ErrorCode


def beat(shard: GroupShard, request: Beat, answer: Callable[[BeatReply], object]) -> None:
    """Handle a ConsumerGroupHeartbeat. A first heartbeat makes the group, also from a classic group without members."""
    group_id = request.group_id
    group, classic = shard.modern.by_id.get(group_id), shard.tables.groups.get(group_id)
    if group is None and request.epoch != JOIN_EPOCH:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id}")
    first: tuple[GroupRecord, ...] = ()
    if group is None and classic is not None:
        _check_replaceable(classic)
        if shard.writer.is_writing(group_id):
            shard.writer.when_idle(group_id, partial(_beat_again, shard, request, answer))
            return
        first = (GroupRecord(GroupKey(group_id), None),) if group_id in shard.tables.stored else ()
    group = group or ConsumerGroup(group_id)

    def written(error: ErrorCode, reply: BeatReply) -> None:
        answer(BeatReply(error, member_id=request.member_id) if error else reply)

    shard.modern.run(group, lambda change, world: heartbeat(change, group, request, world), written, first)
    if group_id in shard.modern.by_id:
        shard.tables.groups.pop(group_id, None)
        shard.tables.stored.pop(group_id, None)


def _beat_again(shard: GroupShard, request: Beat, answer: Callable[[BeatReply], object]) -> None:
    if shard.writer.is_closed:
        answer(BeatReply(ErrorCode.NOT_COORDINATOR))
        return
    try:
        beat(shard, request, answer)
    except ApiError as error:
        answer(BeatReply(error.code, error.message, request.member_id))


def _check_replaceable(classic: Group) -> None:
    """Check that a classic group has no members. Raises ApiError."""
    if classic.state is GroupState.DEAD:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the group {classic.group_id} is being deleted")
    if classic.members or classic.pending_joins:
        message = f"the group {classic.group_id} has members with the classic protocol"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def make_room(shard: GroupShard, group_id: str) -> None:
    """Remove a consumer group without members, so that a classic group takes its place and its offsets.

    Raises INCONSISTENT_GROUP_PROTOCOL if the consumer group has members.
    """
    group = shard.modern.by_id.get(group_id)
    if group is None:
        return
    if group.members:
        message = f"the group {group_id} has members with the consumer protocol"
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
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
        if knows_epochs or error.code is not ErrorCode.STALE_MEMBER_EPOCH:
            return error.code
        return ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.UNSUPPORTED_VERSION
    is_old = not is_transactional and request.generation >= 0 and not knows_epochs
    return ErrorCode.UNSUPPORTED_VERSION if is_old else ErrorCode.NONE
