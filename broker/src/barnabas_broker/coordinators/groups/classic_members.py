"""Members of consumer groups that use the classic protocol, and the change of whole groups to KIP-848 and back.

The generation of such a member is its member epoch. There is no leader: SyncGroup answers with what the coordinator
assigned. The coordinator reads and writes the metadata and the assignments that consumers of the classic protocol
exchange, in Kafka's format.

Up: the first member with the consumer protocol changes the group, in which the classic members go on. Down: after the
last member with the consumer protocol has gone, the group becomes a classic one, and rebalances. The generation is that
of the members, so that they rejoin as in any rebalance.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.groups.group import Group
from barnabas_broker.coordinators.groups.messages import (
    CONSUMER_PROTOCOL_TYPE,
    GroupMetadata,
    JoinReply,
    JoinRequest,
    LeaveResult,
    Member,
    MemberIdentity,
    StoredMember,
    SyncReply,
    SyncRequest,
)
from barnabas_broker.coordinators.modern.consumer_heartbeat import JOIN_EPOCH, Beat, BeatWorld, heartbeat
from barnabas_broker.coordinators.modern.group import ConsumerGroup, GroupChange, ModernMember
from barnabas_broker.coordinators.modern.records import (
    ClassicMetadata,
    Current,
    GroupEpoch,
    Kind,
    MemberMetadata,
    MemberState,
    TargetEpoch,
)
from barnabas_broker.coordinators.modern.targets import Topics, begin_session, metadata_hash, remove
from barnabas_broker.coordinators.runtime.turns import MalformedRecord, Now
from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_core.config.group_configs import GroupConfig
from barnabas_core.errors import ApiError, ErrorCode

_SUBSCRIPTION: Final = "ConsumerProtocolSubscription"
_ASSIGNMENT: Final = "ConsumerProtocolAssignment"
_VERSION_MAX: Final = 3
"""The highest known version; later ones are read as this one, for they only add fields."""
_INT16: Final = struct.Struct(">h")


class Subscription(msgspec.Struct, frozen=True):
    """The topics to which a classic consumer subscribes, and the partitions that it still owns."""

    topics: tuple[str, ...]
    owned: Mapping[UUID, frozenset[int]]
    rack_id: str | None


def subscription(metadata: bytes, topics: Topics) -> Subscription:
    """Decode a consumer's metadata. Raises MalformedRecord."""
    found = _decoded(_SUBSCRIPTION, metadata)
    return Subscription(
        tuple(sorted(set(found.topics))),
        _by_id(found.owned_partitions, topics),
        found.rack_id or None,
    )


def assignment(data: bytes, topics: Topics) -> Mapping[UUID, frozenset[int]]:
    """Decode the assignment that a leader made; empty data is an empty assignment.

    Raises MalformedRecord, also for data of an assignor of the group's own, which nobody else could go on with.
    """
    if not data:
        return {}
    found = _decoded(_ASSIGNMENT, data)
    if found.user_data:
        raise MalformedRecord("an assignor of the group's own has stored user data in an assignment")
    return _by_id(found.assigned_partitions, topics)


def encoded_assignment(
    assigned: Mapping[UUID, Collection[int]], metadata: bytes, name_of: Callable[[UUID], str | None]
) -> bytes:
    """Encode an assignment in the version of a member's metadata; topics that were deleted are left out."""
    names = ((name_of(topic_id), sorted(numbers)) for topic_id, numbers in assigned.items())
    partitions = [_Topic(name, numbers) for name, numbers in sorted(each for each in names if each[0] is not None)]
    version = _version(metadata)
    out = bytearray(_INT16.pack(version))
    encoder(_ASSIGNMENT, version)(out, _Assignment(partitions, None))
    return bytes(out)


class _Topic(NamedTuple):
    topic: str | None
    partitions: Collection[int]


class _Assignment(msgspec.Struct, frozen=True):
    assigned_partitions: Collection[_Topic]
    user_data: bytes | None


def _version(data: bytes) -> int:
    (version,) = _INT16.unpack_from(data)
    return min(int(version), _VERSION_MAX)


def _decoded(name: str, data: bytes) -> Any:
    try:
        version = _version(data)
        return decoder(name, version)(memoryview(data)[_INT16.size :])
    except (struct.error, MalformedRequest, ValueError, LookupError) as error:
        raise MalformedRecord(f"{name}: {error}") from error


def _by_id(partitions: Iterable[Any], topics: Topics) -> dict[UUID, frozenset[int]]:
    """Return partitions by topic id, without topics that do not exist."""
    known = ((topics.find(each.topic), each.partitions) for each in partitions)
    return {found.topic_id: frozenset(numbers) for found, numbers in known if found is not None and numbers}


_UPGRADING: Final = ("bidirectional", "upgrade")
_DOWNGRADING: Final = ("bidirectional", "downgrade")


class Upgrade(msgspec.Struct, frozen=True):
    """A consumer group that was made of a classic one, and the change that has made it."""

    group: ConsumerGroup
    change: GroupChange


def upgraded(classic: Group, settings: GroupConfig, topics: Topics, now_ms: int) -> Upgrade:
    """Make a consumer group of a classic one with members. Raises GROUP_ID_NOT_FOUND."""
    try:
        subscriptions = _upgradable(classic, settings, topics)
        targets = {each.member_id: assignment(each.assignment, topics) for each in classic.members.values()}
    except MalformedRecord as error:
        raise _refusal(classic, str(error)) from error
    group, epoch = ConsumerGroup(classic.group_id), classic.generation
    change = GroupChange(group)
    for member in classic.members.values():
        change.write(Kind.MEMBER, member.member_id, _metadata(member, subscriptions[member.member_id]))
    change.write(Kind.GROUP, "", GroupEpoch(epoch, metadata_hash(group, topics)))
    for member_id, target in targets.items():
        change.write(Kind.TARGET, member_id, target)
    change.write(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, now_ms))
    for member_id, target in targets.items():
        assigned = {topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in target.items()}
        change.write(Kind.CURRENT, member_id, Current(epoch, epoch, MemberState.STABLE, assigned))
    return Upgrade(group, change)


def _upgradable(classic: Group, settings: GroupConfig, topics: Topics) -> dict[str, Subscription]:
    """Return what each member subscribes to. Raises ApiError and MalformedRecord if the group cannot be changed."""
    if settings.migration_policy not in _UPGRADING:
        raise _refusal(classic, f"group.consumer.migration.policy is {settings.migration_policy}")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refusal(classic, f"its protocol type is {classic.protocol_type}, but must be {CONSUMER_PROTOCOL_TYPE}")
    if len(classic.members) > settings.max_size:
        raise _refusal(classic, f"it has {len(classic.members)} members; {settings.max_size} allowed")
    return {each.member_id: subscription(_first(each), topics) for each in classic.members.values()}


def _first(member: Member) -> bytes:
    return member.protocols[0].metadata if member.protocols else b""


def _refusal(classic: Group, reason: str) -> ApiError:
    message = f"the classic group {classic.group_id} cannot change to the consumer protocol: {reason}"
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _metadata(member: Member, found: Subscription) -> MemberMetadata:
    return MemberMetadata(
        member.instance_id,
        found.rack_id,
        member.client_id,
        member.client_host,
        found.topics,
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def may_go_down(group: ConsumerGroup, settings: GroupConfig) -> bool:
    """True if a consumer group becomes a classic one, because all of its members use the classic protocol."""
    is_classic = bool(group.members) and group.classic_count == len(group.members)
    return is_classic and settings.migration_policy in _DOWNGRADING


def downgraded(group: ConsumerGroup, topics: Topics, now_ms: int) -> GroupMetadata:
    """Return the classic group that has the members of a consumer group, with their target assignments."""
    protocol = common_protocols([classic_of(each) for each in group.members.values()])[0]
    members = tuple(_stored(each, protocol, topics) for each in group.members.values())
    generation, leader = group.assignment_epoch, members[0].member_id
    return GroupMetadata(CONSUMER_PROTOCOL_TYPE, generation, protocol, leader, now_ms, members)


def classic_of(member: ModernMember) -> ClassicMetadata:
    """Return what only a member with the classic protocol has."""
    assert member.known.classic_member_metadata is not None
    return member.known.classic_member_metadata


def common_protocols(members: Sequence[ClassicMetadata]) -> list[str]:
    """Return the protocols that all members support, in the order of the first member."""
    others = [{each.name for each in member.supported_protocols} for member in members[1:]]
    names = [each.name for each in members[0].supported_protocols] if members else []
    return [name for name in names if all(name in other for other in others)]


def _stored(member: ModernMember, protocol: str, topics: Topics) -> StoredMember:
    known, classic = member.known, classic_of(member)
    metadata = next(each.metadata for each in classic.supported_protocols if each.name == protocol)
    return StoredMember(
        member.member_id,
        known.instance_id,
        known.client_id,
        known.client_host,
        known.rebalance_timeout_ms,
        classic.session_timeout_ms,
        metadata,
        encoded_assignment(member.target, metadata, topics.name_of),
    )


_DISABLED: Final = "disabled"


def join(change: GroupChange, group: ConsumerGroup, request: JoinRequest, world: BeatWorld) -> JoinReply:
    """Add a classic member, or let it rejoin; the answer comes at once. Raises ApiError."""
    classic = ClassicMetadata(request.session_timeout_ms, request.protocols)
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
    return [classic_of(each) for each in group.members.values() if each.is_classic and each.member_id != without]


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
    begin_session(group, member, world)
    metadata = classic_of(member).supported_protocols[0].metadata
    assigned = encoded_assignment(member.current.assigned, metadata, world.topics.name_of)
    return SyncReply(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocols[0], assigned)


def classic_heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, world: BeatWorld
) -> ErrorCode:
    """Extend a member's session; return REBALANCE_IN_PROGRESS if it has to rejoin. Raises ApiError."""
    member = _checked(group, member_id, instance_id, generation)
    begin_session(group, member, world)
    if not _must_rejoin(group, member):
        return ErrorCode.NONE
    if member.classic_deadline_ms is None:
        _await_request(group, member, world.now)
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
