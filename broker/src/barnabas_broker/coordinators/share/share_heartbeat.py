"""The handling of ShareGroupHeartbeat requests, without IO and clock: members join, go on, leave and are fenced.

A member has no partitions to revoke, because members share them: each heartbeat brings it to the target assignment at
once.

| the member's epoch in the request | member | the answer |
|---|---|---|
| 0 | unknown, and the group is full | GROUP_MAX_SIZE_REACHED |
| 0 | known or unknown | joins, or joins again |
| above 0, or -1 | unknown | UNKNOWN_MEMBER_ID |
| the current one, or the one before | known | goes on |
| any other above 0 | known | FENCED_MEMBER_EPOCH |
| -1 | known | leaves |
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_broker.coordinators.modern.consumer_heartbeat import JOIN_EPOCH, SUBSCRIPTION_BYTES_MAX, BeatReply
from barnabas_broker.coordinators.modern.group import LEAVE_EPOCH, GroupChange, ModernMember
from barnabas_broker.coordinators.modern.lifecycle import (
    Plan,
    World,
    assign,
    begin_epoch,
    begin_session,
    check_size,
    is_assignment_due,
    remove,
)
from barnabas_broker.coordinators.modern.records import Current, Kind, MemberMetadata, MemberState, Owned
from barnabas_broker.coordinators.modern.targets import question
from barnabas_broker.coordinators.share.share_group import ShareGroup, Uninitialized, begun, size_bytes
from barnabas_broker.coordinators.share.simple_assignor import simple_in_steps
from barnabas_broker.coordinators.share_state.share_state import UNKNOWN_OFFSET, InitializeEntry
from barnabas_core.config.group_configs import ShareGroupConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps
from barnabas_core.topic_partition import TopicIdPartition

ShareWorld = World[ShareGroupConfig]
"""The facts outside a share group on which a decision depends."""
SHARE_TOPICS_BYTES_MAX: Final = 900_000
"""The bytes of the record of the topics with share state; the log takes no record of more than 1 MiB."""
MEMBER_ID_CHARS_MAX: Final = 36
"""The maximum length of a member id, which is a UUID that the client makes."""


class ShareBeat(NamedTuple):
    """A ShareGroupHeartbeat request; None means that the value has not changed since the last heartbeat."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    topic_names: Sequence[str] | None = None


def check(beat: ShareBeat) -> None:
    """Check the fields of a request that do not depend on the group. Raises ApiError."""
    size = len("".join((*(beat.topic_names or ()), beat.rack_id or "")).encode())
    checks = (
        (not beat.member_id, "MemberId can't be empty."),
        (len(beat.member_id) > MEMBER_ID_CHARS_MAX, f"MemberId must have at most {MEMBER_ID_CHARS_MAX} characters."),
        (not beat.group_id, "GroupId can't be empty."),
        (beat.rack_id == "", "RackId can't be empty."),
        (beat.epoch == JOIN_EPOCH and not beat.topic_names, "SubscribedTopicNames must be set in first request."),
        (beat.epoch < LEAVE_EPOCH, f"MemberEpoch is {beat.epoch}, but must be {LEAVE_EPOCH} or more."),
        (size > SUBSCRIPTION_BYTES_MAX, f"The subscription has {size} bytes; {SUBSCRIPTION_BYTES_MAX} allowed."),
    )
    for is_wrong, message in checks:
        if is_wrong:
            raise ApiError(ErrorCode.INVALID_REQUEST, message)


class ShareReply(NamedTuple):
    """The answer to a ShareGroupHeartbeat, and the partitions whose share state must be initialized after it."""

    beat: BeatReply
    to_initialize: Sequence[InitializeEntry] = ()


def heartbeat(change: GroupChange, group: ShareGroup, beat: ShareBeat, world: ShareWorld) -> ShareReply:
    """Decide on a heartbeat; `change` is one of the group. Raises ApiError."""
    member = group.members.get(beat.member_id)
    if beat.epoch == LEAVE_EPOCH:
        return ShareReply(_leave(change, _checked(member, beat), world))
    if beat.epoch != JOIN_EPOCH:
        _check_epoch(_checked(member, beat).current, beat)
    elif member is None:
        check_size(group, world, "group.share.max.size")
    before = Current() if member is None else member.current
    is_due = _subscribe(change, None if member is None else member.metadata, beat)
    if group.assignment_epoch >= group.epoch:
        is_due |= group.has_unassigned(world.topics)
    begin_epoch(change, world, is_due=is_due)
    if is_assignment_due(group, world):
        assign(change, plan(group, world), world.now)
    member = group.members[beat.member_id]
    _reconcile(change, group, member, world, is_due=is_due)
    begin_session(group, member, world)
    return _initialize(change, group, _reply(member, before, beat, world), world)


def plan(group: ShareGroup, world: ShareWorld) -> InSteps[Plan]:
    """Return the computation of the group's next target assignment, of initialized partitions only."""
    subscribers, counts = yield from question(group, world.topics)
    assignable = {
        topic_id: sorted(number for number in each.partitions if number < counts[topic_id])
        for topic_id, each in group.topics.initialized.items()
        if topic_id in counts
    }
    size = len(subscribers) + sum(map(len, assignable.values()))
    return Plan(size, simple_in_steps(subscribers, assignable))


def _checked(member: ModernMember | None, beat: ShareBeat) -> ModernMember:
    if member is None:
        message = f"Member {beat.member_id} is not a member of group {beat.group_id}."
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def _check_epoch(current: Current, beat: ShareBeat) -> None:
    """Check the member epoch. The previous one counts, because the last answer may be lost. Raises ApiError."""
    if beat.epoch not in (current.epoch, current.previous_epoch):
        message = f"the member epoch is {beat.epoch}, but must be {current.epoch}; the member must join again"
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _subscribe(change: GroupChange, old: MemberMetadata | None, beat: ShareBeat) -> bool:
    """Store what the heartbeat says about the member; return True if its topics have changed."""
    before = old or MemberMetadata()
    names = before.subscribed_topic_names if beat.topic_names is None else tuple(sorted(set(beat.topic_names)))
    rack_id = before.rack_id if beat.rack_id is None else beat.rack_id
    metadata = MemberMetadata(None, rack_id, beat.client_id, beat.client_host, names)
    if metadata != old:
        change.write(Kind.MEMBER, beat.member_id, metadata)
    return names != before.subscribed_topic_names


def _reconcile(
    change: GroupChange, group: ShareGroup, member: ModernMember, world: ShareWorld, *, is_due: bool
) -> None:
    """Give the member its target assignment, without topics to which it does not subscribe any more."""
    current = member.current
    if current.epoch == group.assignment_epoch and not is_due:
        return
    names, name_of = group.topics_of(member.known), world.topics.name_of
    assigned: Owned = {
        topic_id: dict.fromkeys(sorted(numbers), 0)
        for topic_id, numbers in member.target.items()
        if name_of(topic_id) in names
    }
    is_same_epoch = current.epoch == group.assignment_epoch
    previous = current.previous_epoch if is_same_epoch else current.epoch
    found = Current(group.assignment_epoch, previous, MemberState.STABLE, assigned)
    if found != current:
        change.write(Kind.CURRENT, member.member_id, found)


def _reply(member: ModernMember, before: Current, beat: ShareBeat, world: ShareWorld) -> BeatReply:
    current = member.current
    is_asked = beat.epoch == JOIN_EPOCH or beat.topic_names is not None
    is_told = is_asked or current.assigned != before.assigned
    return BeatReply(
        member_id=member.member_id,
        epoch=current.epoch,
        heartbeat_interval_ms=world.settings.heartbeat_interval_ms,
        assignment=current.assigned if is_told else None,
    )


def _initialize(change: GroupChange, group: ShareGroup, reply: BeatReply, world: ShareWorld) -> ShareReply:
    """Note the partitions without share state as initializing; they are initialized once the records are written."""
    now_ms = world.now.steady_ms
    found = group.to_initialize(world.topics, now_ms)
    if not found:
        return ShareReply(reply)
    topics = begun(group.topics, {each.topic_id: each.share for each in found})
    if size_bytes(topics) > SHARE_TOPICS_BYTES_MAX:
        change.notes.append(f"{len(found)} topics more are not initialized: their record would be too large")
        return ShareReply(reply)
    change.write(Kind.OLD_TOPICS, "", topics)
    for each in found:
        group.initialize_again_ms[each.topic_id] = now_ms + world.settings.initialize_retry_interval_ms
    return ShareReply(reply, [entry for each in found for entry in _entries(each, group.epoch)])


def _entries(found: Uninitialized, state_epoch: int) -> Iterator[InitializeEntry]:
    for number in sorted(found.share.partitions):
        start_offset = 0 if number in found.at_start else UNKNOWN_OFFSET
        yield InitializeEntry(TopicIdPartition(found.topic_id, number), state_epoch, start_offset)


def _leave(change: GroupChange, member: ModernMember, world: ShareWorld) -> BeatReply:
    change.notes.append(f"member {member.member_id} left")
    remove(change, [member], world)
    return BeatReply(member_id=member.member_id, epoch=LEAVE_EPOCH)
