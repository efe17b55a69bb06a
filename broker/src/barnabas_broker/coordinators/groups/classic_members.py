"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848).

Their generation is their member epoch. They have no leader: SyncGroup answers with what the coordinator assigned.
"""

from collections.abc import Iterable
from typing import Final

from barnabas_broker.coordinators.groups.messages import (
    CONSUMER_PROTOCOL_TYPE,
    JoinReply,
    JoinRequest,
    LeaveResult,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.migration import common_protocols, encoded_assignment, subscription
from barnabas_broker.coordinators.modern.consumer_heartbeat import JOIN_EPOCH, Beat, BeatWorld, heartbeat
from barnabas_broker.coordinators.modern.group import ConsumerGroup, GroupChange, ModernMember
from barnabas_broker.coordinators.modern.records import ClassicMetadata, ClassicProtocol, MemberState
from barnabas_broker.coordinators.modern.targets import remove
from barnabas_broker.coordinators.runtime.alarms import Now
from barnabas_broker.coordinators.runtime.record_strings import MalformedRecord
from barnabas_core.errors import ApiError, ErrorCode

_DISABLED: Final = "disabled"


def join(change: GroupChange, group: ConsumerGroup, request: JoinRequest, world: BeatWorld) -> JoinReply:
    """Add a classic member, or let it rejoin; the answer comes at once. Raises ApiError."""
    classic = ClassicMetadata(
        request.session_timeout_ms, tuple(ClassicProtocol(each.name, each.metadata) for each in request.protocols)
    )
    _check_protocols(group, request, classic, world)
    if not request.member_id and request.instance_id is None and request.requires_known_member_id:
        return JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id=request.new_member_id)
    try:
        found = subscription(request.protocols[0].metadata, world.topics)
    except MalformedRecord as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
    beat = Beat(
        request.group_id,
        request.member_id or request.new_member_id,
        JOIN_EPOCH,
        request.client_id,
        request.client_host,
        request.instance_id,
        found.rack_id,
        request.rebalance_timeout_ms,
        found.topics,
        "",
        owned=found.owned,
        classic=classic,
    )
    reply = heartbeat(change, group, beat, world)
    member = group.members[beat.member_id]
    _await_request(group, member, world.now)
    protocol = common_protocols(_classic_ones(group))[0]
    return JoinReply(ErrorCode.NONE, member.member_id, reply.epoch, CONSUMER_PROTOCOL_TYPE, protocol)


def _check_protocols(group: ConsumerGroup, request: JoinRequest, classic: ClassicMetadata, world: BeatWorld) -> None:
    if world.settings.migration_policy == _DISABLED:
        message = "group.consumer.migration.policy is disabled"
    elif request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
        message = f"the protocol type must be {CONSUMER_PROTOCOL_TYPE}, with at least one protocol"
    elif not common_protocols([classic, *_classic_ones(group, without=request.member_id)]):
        message = "the members of the group have no protocol in common"
    else:
        return
    raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)


def _classic_ones(group: ConsumerGroup, without: str = "") -> list[ClassicMetadata]:
    return [
        each.known.classic_member_metadata
        for each in group.members.values()
        if each.known.classic_member_metadata is not None and each.member_id != without
    ]


def _await_request(group: ConsumerGroup, member: ModernMember, now: Now) -> None:
    """Begin the time in which a member must send its next JoinGroup or SyncGroup."""
    member.classic_deadline_ms = group.expect(now.steady_ms + member.known.rebalance_timeout_ms)


def sync(group: ConsumerGroup, request: SyncRequest, world: BeatWorld) -> SyncReply:
    """Return what a member has been assigned. Raises ApiError."""
    member = _checked(group, request.member_id, request.instance_id, request.generation)
    protocols = common_protocols(_classic_ones(group))
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, protocols[0]):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if _must_rejoin(group, member) and member.current.state is not MemberState.UNREVOKED:
        _await_request(group, member, world.now)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    member.classic_deadline_ms = None
    _touch(group, member, world.now)
    assert member.known.classic_member_metadata is not None
    metadata = member.known.classic_member_metadata.supported_protocols[0].metadata
    assigned = encoded_assignment(member.current.assigned, metadata, world.topics.name_of)
    return SyncReply(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocols[0], assigned)


def classic_heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: Now
) -> ErrorCode:
    """Extend a member's session; return REBALANCE_IN_PROGRESS if it has to rejoin. Raises ApiError."""
    member = _checked(group, member_id, instance_id, generation)
    _touch(group, member, now)
    if not _must_rejoin(group, member):
        return ErrorCode.NONE
    if member.classic_deadline_ms is None:
        _await_request(group, member, now)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _checked(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ModernMember:
    """Return the classic member that sends a request. Raises ApiError."""
    if instance_id is not None and group.static_members.get(instance_id, member_id) != member_id:
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None or not member.is_classic:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.current.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _touch(group: ConsumerGroup, member: ModernMember, now: Now) -> None:
    assert member.known.classic_member_metadata is not None
    timeout_ms = member.known.classic_member_metadata.session_timeout_ms
    member.session_deadline_ms = group.expect(now.steady_ms + timeout_ms)


def _must_rejoin(group: ConsumerGroup, member: ModernMember) -> bool:
    """True if a JoinGroup would bring the member nearer to its target."""
    current = member.current
    if current.epoch < group.assignment_epoch or current.state is MemberState.UNREVOKED:
        return True
    if current.state is not MemberState.UNRELEASED:
        return False
    return all(
        len(group.free(member.member_id, topic_id, numbers)) == len(numbers)
        for topic_id, numbers in member.target.items()
    )


def leave(
    change: GroupChange, group: ConsumerGroup, identities: Iterable[MemberIdentity], world: BeatWorld
) -> list[LeaveResult]:
    """Remove members; return a result for each."""
    results, gone = [], dict[str, ModernMember]()
    for identity in identities:
        holder = None if identity.instance_id is None else group.static_members.get(identity.instance_id)
        member = group.members.get(identity.member_id or holder or "")
        error = ErrorCode.NONE
        if member is None or (identity.instance_id is not None and holder is None):
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif holder not in (None, member.member_id):
            error = ErrorCode.FENCED_INSTANCE_ID
        else:
            gone[member.member_id] = member
            change.notes.append(f"member {member.member_id} left: {identity.reason or 'no reason given'}")
        results.append(LeaveResult(identity, error))
    if gone:
        remove(change, gone.values(), world)
    return results
