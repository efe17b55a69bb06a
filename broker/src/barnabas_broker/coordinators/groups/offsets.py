"""The rules for committed offsets: who may commit and delete offsets, and when offsets expire (KIP-211)."""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import CONSUMER_PROTOCOL_TYPE, NO_MEMBER_ID, CommitRequest
from barnabas_broker.coordinators.groups.records import NO_TIMESTAMP, CommittedOffset
from barnabas_broker.coordinators.modern.group import ConsumerGroup
from barnabas_broker.coordinators.runtime.alarms import Now
from barnabas_core.errors import ErrorCode
from barnabas_core.reset_mark import is_marked, says_nothing
from barnabas_core.topic_partition import TopicPartition

COMMIT_WITH_EPOCHS: Final = 9
"""The first version of OffsetCommit with member epochs."""
TXN_COMMIT_WITH_EPOCHS: Final = 6
"""The first version of TxnOffsetCommit whose clients know the errors of member epochs."""

Offsets = Mapping[TopicPartition, CommittedOffset]
"""The committed offsets of one group."""


def check_commit(group: Group, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
    """Return an error code for an OffsetCommit, NONE if the commit is allowed.

    Members of the current generation may commit, except in CompletingRebalance. Clients without a generation may commit
    while the group is Empty. A commit restarts the member's session timeout.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.state is GroupState.EMPTY and generation < 0:
        return ErrorCode.NONE
    if generation < 0 and member_id == NO_MEMBER_ID and instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    group.touch(group.members[member_id], now)
    return ErrorCode.NONE


def check_transactional_commit(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Return the error code for a TxnOffsetCommit.

    The code is NONE if the request names no member, or names a current member and the current generation (KIP-447).
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    is_named = generation >= 0 or member_id != NO_MEMBER_ID or instance_id is not None
    if not is_named or (generation < 0 and group.state is GroupState.EMPTY):
        return ErrorCode.NONE
    error = group.check_member(member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def knows_member_epochs(request: CommitRequest) -> bool:
    """True if the client knows member epochs and the errors of consumer groups that have them (KIP-848, KIP-1319)."""
    first_version = COMMIT_WITH_EPOCHS if request.producer is None else TXN_COMMIT_WITH_EPOCHS
    return request.api_version >= first_version


def check_unknown_group_commit(request: CommitRequest) -> ErrorCode:
    """Return the error code for a commit to an unknown group: NONE if the commit names no generation."""
    if request.generation < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if knows_member_epochs(request) else ErrorCode.ILLEGAL_GENERATION


def following(offset: CommittedOffset, before: CommittedOffset | None, member_id: str, now_ms: int) -> CommittedOffset:
    """Return the offset to store, with its commit timestamp, for a commit that replaces the offset `before`.

    The Kubernetes operator marks each reset of an offset in the metadata of the offset, so that the reset is not
    repeated. The stored offset keeps the mark unless the client commits metadata of its own.
    """
    metadata = offset.metadata
    if before is not None and before.metadata and says_nothing(metadata, member_id) and is_marked(before.metadata):
        metadata = before.metadata
    return offset._replace(metadata=metadata, commit_timestamp_ms=now_ms)


def check_delete_group(group: Group) -> ErrorCode:
    """Return the error code for the deletion of a group (DeleteGroups): NONE if the group is Empty."""
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def check_delete_offsets(group: Group) -> ErrorCode:
    """Return the error code for an OffsetDelete (KIP-496), or NONE.

    If the group has members, its protocol type must be `consumer`, because only the metadata of consumers names the
    subscribed topics.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    known = group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return ErrorCode.NONE if known else ErrorCode.NON_EMPTY_GROUP


def expiries(group: Group | ConsumerGroup, offsets: Offsets, retention_ms: int) -> Iterator[tuple[TopicPartition, int]]:
    """Yield each offset that can expire, with the wall-clock time in ms at which the offset expires.

    An offset expires after the retention, which begins:
    - in an Empty group: when the group became Empty;
    - in a Stable consumer group, for topics to which no member subscribes: at the commit;
    - in a group without a protocol type: at the commit;
    - in a consumer group of KIP-848, for topics to which no member subscribes: at the commit.
    All other offsets are in use and do not expire. If the commit itself set an expiry time, this time applies instead.
    """
    if isinstance(group, Group) and not _may_expire(group):
        return
    for topic_partition, offset in offsets.items():
        if not group.is_subscribed_to(topic_partition.topic):
            yield topic_partition, _expiry_ms(group, offset, retention_ms)


def _may_expire(group: Group) -> bool:
    if group.protocol_type is None or group.state is GroupState.EMPTY:
        return True
    return group.state is GroupState.STABLE and group.subscribed_topics is not None


def _expiry_ms(group: Group | ConsumerGroup, offset: CommittedOffset, retention_ms: int) -> int:
    if offset.expire_timestamp_ms is not None:
        return offset.expire_timestamp_ms
    since_ms = offset.commit_timestamp_ms
    if isinstance(group, Group) and group.protocol_type is not None and group.state is GroupState.EMPTY:
        since_ms = since_ms if group.state_timestamp_ms == NO_TIMESTAMP else group.state_timestamp_ms
    return since_ms + retention_ms
