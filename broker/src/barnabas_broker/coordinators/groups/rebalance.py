"""The join phase of a rebalance: which members may join, and how the phase begins and ends.

The join phase ends when every member has joined, or at its deadline. Dynamic members that did not join by the deadline
are removed; static members stay until their session times out. After the removal of a member, callers call
`complete_if_joined`, so that the phase does not wait for the removed member.
"""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.coordinators.groups.group import Group, GroupState, JoinDeadline, metadata_bytes
from barnabas_broker.coordinators.groups.messages import (
    NO_MEMBER_ID,
    Append,
    GroupMetadata,
    JoinReply,
    JoinRequest,
    Member,
    StaticRejoin,
    Step,
    StoredMember,
    SyncReply,
    Token,
    subscribed_topics,
)
from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_broker.coordinators.runtime.turns import MalformedRecord, Now
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ErrorCode


def group_metadata(group: Group, assignments: Mapping[str, bytes]) -> GroupMetadata:
    """Return the group's metadata; a member that is not in `assignments` has an empty assignment."""
    return GroupMetadata(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        state_timestamp_ms=group.state_timestamp_ms,
        members=tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ),
    )


def restore_group(group_id: str, stored: GroupMetadata, now: Now) -> Group:
    """Return the group that a record describes. Raises MalformedRecord.

    A group with members is Stable, and the sessions of its members begin now. A group without members is Empty.
    """
    _check_restorable(stored)
    member_ids = [member.member_id for member in stored.members]
    group = Group(
        group_id,
        state=GroupState.STABLE if stored.members else GroupState.EMPTY,
        state_timestamp_ms=stored.state_timestamp_ms,
        generation=stored.generation,
        protocol_type=stored.protocol_type or None,
        protocol_name=stored.protocol,
        leader=stored.leader if stored.leader in member_ids else None,
    )
    for member in stored.members:
        protocols = () if stored.protocol is None else (MemberProtocol(stored.protocol, member.subscription),)
        restored = Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            protocols=protocols,
            assignment=member.assignment,
            session_deadline_ms=group.expect(now.steady_ms + member.session_timeout_ms),
            is_unheard_of=True,
        )
        group.add(restored, stored.protocol_type)
    group.learn_subscribed_topics()
    return group


def _check_restorable(stored: GroupMetadata) -> None:
    """Raise MalformedRecord if the record describes an impossible group."""
    if stored.generation < 0:
        raise MalformedRecord(f"the generation is {stored.generation}, but must be 0 or more")
    if stored.members and not (stored.protocol_type and stored.protocol):
        raise MalformedRecord(f"the group has {len(stored.members)} members, but no protocol or no protocol type")
    member_ids = [member.member_id for member in stored.members]
    instance_ids = [member.instance_id for member in stored.members if member.instance_id is not None]
    if "" in member_ids:
        raise MalformedRecord("a member of the group has no id")
    for ids in (member_ids, instance_ids):
        if len(set(ids)) < len(ids):
            raise MalformedRecord(
                "two members have the same member id or the same group.instance.id; the sorted ids of all members "
                f"(at most 10 are shown) are {', '.join(sorted(ids)[:10])}"
            )


_NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""The maximum time in ms that a new member waits for its JoinGroup response, as in Kafka; then it is removed."""
_FIRST_PAUSE_MS: Final = 100
"""The minimum duration in ms of the join phase after the first failure to store an assignment.

The value is the default `retry.backoff.ms` of clients.
"""
METADATA_BYTES_MAX: Final = 64 * 1024 * 1024
"""The maximum size in bytes of the metadata of all members of a group, which the coordinator holds in memory.

The metadata for one protocol has to fit into a record anyway, which has 1 MiB unless `message.max.bytes` is higher.
"""
_PAUSE_MS_MAX: Final = 5_000
_PAUSE_DOUBLINGS_MAX: Final = 6
"""The number of doublings after which the minimum duration of the join phase is at its limit, `_PAUSE_MS_MAX`."""


def join(group: Group, request: JoinRequest, token: Token, step: Step) -> None:
    """Add or update a member by its JoinGroup, and answer the request now or when the join phase ends."""
    error = _refusal(group, request, step.config)
    if error is not ErrorCode.NONE:
        _refuse(group, request, token, error, step)
    elif request.member_id == NO_MEMBER_ID:
        _join_new(group, request, token, step)
    elif request.member_id in group.pending_joins:
        _add(group, request, request.member_id, token, step)
    else:
        _rejoin(group, group.members[request.member_id], request, token, step)


def _refusal(group: Group, request: JoinRequest, config: BrokerConfig) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    fits = _metadata_after(group, request) <= METADATA_BYTES_MAX
    if not fits or not _has_room(group, request.member_id, config.group_max_size):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _is_supported(group, request):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id == NO_MEMBER_ID:
        return ErrorCode.NONE
    if request.member_id in group.pending_joins and request.instance_id is None:
        return ErrorCode.NONE
    return group.check_member(request.member_id, request.instance_id)


def _is_supported(group: Group, request: JoinRequest) -> bool:
    """Return True if the request has the group's protocol type and a protocol that all members support."""
    if not group.members:
        return bool(request.protocol_type and request.protocols)
    counts, size = group.protocol_counts, len(group.members)
    return request.protocol_type == group.protocol_type and any(counts[each.name] == size for each in request.protocols)


def _has_room(group: Group, member_id: str, max_size: int) -> bool:
    """True if the member fits into `group.max.size`; in the join phase only members that have joined count."""
    if group.state is GroupState.EMPTY or len(group.members) < max_size:
        return True
    member = group.members.get(member_id)
    if group.state is not GroupState.PREPARING_REBALANCE:
        return member is not None
    joined = sum(other.awaiting_join is not None for other in group.members.values())
    return joined < max_size or (member is not None and member.awaiting_join is not None)


def _metadata_after(group: Group, request: JoinRequest) -> int:
    """Return the bytes of the metadata of all members after the JoinGroup."""
    member = group.members.get(request.member_id)
    replaced = 0 if member is None else metadata_bytes(member.protocols)
    return group.metadata_bytes - replaced + metadata_bytes(request.protocols)


def _refuse(group: Group, request: JoinRequest, token: Token, error: ErrorCode, step: Step) -> None:
    if error is not ErrorCode.GROUP_MAX_SIZE_REACHED:
        step.reply(token, JoinReply(error, member_id=request.member_id))
        return
    step.reply(token, JoinReply(error))
    group.take_back_id(request.member_id)
    if request.member_id in group.members:
        dismiss(group, step, request.member_id)
    complete_if_joined(group, step)


def _join_new(group: Group, request: JoinRequest, token: Token, step: Step) -> None:
    known = None if request.instance_id is None else group.static_members.get(request.instance_id)
    if known is not None:
        _replace_static(group, known, request, token, step)
    elif request.instance_id is None and request.requires_known_member_id:
        group.give_id(request.new_member_id, step.now.steady_ms + request.session_timeout_ms)
        step.reply(token, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id=request.new_member_id))
    else:
        _add(group, request, request.new_member_id, token, step)


def _add(group: Group, request: JoinRequest, member_id: str, token: Token, step: Step) -> None:
    member = Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        awaiting_join=token,
        is_new=True,
        session_deadline_ms=group.expect(step.now.steady_ms + _NEW_MEMBER_JOIN_TIMEOUT_MS),
    )
    group.add(member, request.protocol_type)
    reason = _reason(request, f"member {member_id} joins")
    begin_or_complete(group, step, reason)


def _rejoin(group: Group, member: Member, request: JoinRequest, token: Token, step: Step) -> None:
    """Handle a rejoin: answer with the current generation, or let the member join or begin a rebalance.

    A member always joins a rebalance that is being prepared. A rejoin of the leader of a Stable group always begins a
    rebalance, because the leader has seen new topics or partitions. Any other member that rejoins with unchanged
    protocols most likely did not receive the answer to its last JoinGroup, so the member gets the answer again.
    """
    unchanged = member.protocols == request.protocols
    leads = group.leader == member.member_id
    repeats = {
        GroupState.PREPARING_REBALANCE: False,
        GroupState.COMPLETING_REBALANCE: unchanged,
        GroupState.STABLE: unchanged and not leads,
    }
    if repeats[group.state]:
        group.touch(member, step.now)
        step.reply(token, group.join_reply(member))
        return
    _update(group, member, request, token, step)
    what = "rejoins" if unchanged else "changed its protocols"
    reason = _reason(request, f"{'leader' if leads else 'member'} {member.member_id} {what}")
    begin_or_complete(group, step, reason)


def _update(group: Group, member: Member, request: JoinRequest, token: Token, step: Step) -> None:
    """Update a member from its JoinGroup; if an earlier JoinGroup waits, answer that with REBALANCE_IN_PROGRESS."""
    answer_join(member, step, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
    group.await_generation(member, request, token)


def _replace_static(group: Group, old_member_id: str, request: JoinRequest, token: Token, step: Step) -> None:
    """Give a restarted static member a new member id, and fence the old member id.

    Rebalance if the member's assignment may change. Otherwise answer the member's JoinGroup once a group record with
    the new member id is committed.
    """
    old_leader = group.leader
    member = group.replace_static(old_member_id, request)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    answer_join(member, step, JoinReply(fenced, member_id=old_member_id))
    answer_sync(member, step, SyncReply(fenced))
    topics_before = subscribed_topics(member.metadata(group.protocol_name))
    _update(group, member, request, token, step)
    group.touch(member, step.now)
    if group.state is GroupState.STABLE and _still_fits(group, member, topics_before):
        step.append = Append(
            group_metadata(group, _assignments(group)), _static_rejoin(group, member, request, old_leader)
        )
        return
    reason = _reason(request, f"static member {request.instance_id} rejoins as {member.member_id}")
    begin_or_complete(group, step, reason)


def _still_fits(group: Group, member: Member, topics_before: frozenset[str] | None) -> bool:
    """True if the group's protocol and the member's topics are unchanged; Kafka compares only the protocol."""
    return (
        group.select_protocol() == group.protocol_name
        and subscribed_topics(member.metadata(group.protocol_name)) == topics_before
    )


def _assignments(group: Group) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}


def _static_rejoin(group: Group, member: Member, request: JoinRequest, old_leader: str | None) -> StaticRejoin:
    """Return the reply for a static member that must not compute an assignment, not even as the leader (KIP-814).

    Since JoinGroup version 9, a field of the reply says so. In older versions, the reply has the previous member id of
    the leader, so that the member does not take itself for the leader.
    """
    assert member.awaiting_join is not None
    reply = group.join_reply(member)
    if request.supports_skipping_assignment:
        reply = reply._replace(skip_assignment=group.leader == member.member_id)
    else:
        reply = reply._replace(leader=old_leader or "", members=())
    return StaticRejoin(member.awaiting_join, reply)


def _reason(request: JoinRequest, what: str) -> str:
    return f"{what} ({request.reason})" if request.reason else what


def begin_or_complete(group: Group, step: Step, reason: str) -> None:
    """Begin a rebalance, or complete the current join phase if all members have joined."""
    if group.can_rebalance:
        begin(group, step, reason)
    else:
        complete_if_joined(group, step)


def begin(group: Group, step: Step, reason: str) -> None:
    """Enter the join phase; end it at once if all members have joined.

    An Empty group waits `group.initial.rebalance.delay.ms` for more members (KIP-134), and for nobody after that.
    """
    step.notes.append(f"a rebalance begins in state {group.state.value}, generation {group.generation}: {reason}")
    waits_for_delay_only = group.state is GroupState.EMPTY
    _enter(group, step)
    assert group.join_deadline is not None
    if waits_for_delay_only and not group.join_deadline.is_initial:
        complete(group, step)
    else:
        complete_if_joined(group, step)


def begin_after_failure(group: Group, step: Step, reason: str) -> None:
    """Enter the join phase because the last assignment could not be stored.

    Clients may rejoin at once, but the next assignment most likely cannot be stored either. The join phase therefore
    has a minimum duration, which doubles with each consecutive failure. Only the first of these failures is logged.
    """
    pause_ms = min(_FIRST_PAUSE_MS << min(group.failed_stores, _PAUSE_DOUBLINGS_MAX), _PAUSE_MS_MAX)
    group.store_failed()
    if group.failed_stores == 1:
        most = (
            "the coordinator repeats the rebalance until an assignment is stored, with pauses of at most "
            f"{_PAUSE_MS_MAX // 1000} s"
        )
        step.notes.append(f"a rebalance begins after generation {group.generation}: {reason}; {most}")
    _enter(group, step, pause_ms)


def _enter(group: Group, step: Step, pause_ms: int = 0) -> None:
    """Enter the join phase, and answer each waiting SyncGroup with REBALANCE_IN_PROGRESS."""
    for member in group.members.values():
        if answer_sync(member, step, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)):
            group.touch(member, step.now)
    now_ms, timeout_ms = step.now.steady_ms, group.rebalance_timeout_ms
    delay_ms = step.config.group_initial_rebalance_delay_ms if group.state is GroupState.EMPTY else 0
    deadline = JoinDeadline(
        at_ms=now_ms + max(delay_ms or timeout_ms, pause_ms),
        is_initial=delay_ms > 0,
        delay_ms=delay_ms,
        remaining_ms=max(timeout_ms - delay_ms, 0),
        paused_until_ms=now_ms + pause_ms if pause_ms else 0,
    )
    group.begin_join_phase(deadline, step.now)


def complete_if_joined(group: Group, step: Step) -> None:
    """End the join phase early if all members, and all clients with pending member ids, have joined.

    A group without members does not wait for these clients. The initial delay of an Empty group, and the pause after a
    failure, are never cut short.
    """
    deadline = group.join_deadline
    if deadline is None or deadline.is_initial or deadline.paused_until_ms > step.now.steady_ms:
        return
    waits_for_clients = bool(group.pending_joins and group.members)
    if not waits_for_clients and all(member.awaiting_join is not None for member in group.members.values()):
        complete(group, step)


def pause_over(group: Group, step: Step) -> None:
    """End the pause that delays a join phase after an assignment could not be stored.

    End the join phase if all members have joined.
    """
    assert group.join_deadline is not None
    group.join_deadline.end_pause()
    complete_if_joined(group, step)


def deadline_passed(group: Group, step: Step) -> None:
    """End the join phase at its deadline; extend the first join phase of an Empty group if a member has joined."""
    deadline = group.join_deadline
    assert deadline is not None
    if not (deadline.new_member_added and deadline.remaining_ms):
        complete(group, step)
        return
    delay_ms = min(step.config.group_initial_rebalance_delay_ms, deadline.remaining_ms)
    remaining_ms = max(deadline.remaining_ms - deadline.delay_ms, 0)
    group.await_joins(JoinDeadline(step.now.steady_ms + delay_ms, True, delay_ms, remaining_ms))


def complete(group: Group, step: Step) -> None:
    """End the join phase, begin a generation with the members that joined, and answer their JoinGroups.

    Dynamic members that did not join are removed. If only static members are left and none has joined, the join phase
    continues. A group without members becomes Empty.
    """
    members = list(group.members.values())
    absent = [member for member in members if member.awaiting_join is None]
    for member in absent:
        if member.instance_id is None:
            step.notes.append(f"member {member.member_id} did not rejoin in time, and is removed from the group")
            group.remove(member.member_id)
    if group.members and len(absent) == len(members):
        step.notes.append(
            "no member rejoined in time; the group waits until the sessions of its static members time out"
        )
        # A client may choose a rebalance timeout of 0, so the join phase is extended by at least _PAUSE_MS_MAX.
        pause_ms = max(group.rebalance_timeout_ms, _PAUSE_MS_MAX)
        group.await_joins(JoinDeadline(step.now.steady_ms + pause_ms))
        return
    group.begin_generation(step.now)
    if not group.members:
        step.notes.append(f"generation {group.generation} has no members")
        step.append = Append(group_metadata(group, {}))
    elif not group.failed_stores:
        step.notes.append(f"generation {group.generation} has {len(group.members)} members")
    for member in group.members.values():
        answer_join(member, step, group.join_reply(member))


def answer_join(member: Member, step: Step, reply: JoinReply) -> None:
    """Answer the member's waiting JoinGroup, if one waits."""
    token = member.end_join()
    if token is not None:
        step.reply(token, reply)


def answer_sync(member: Member, step: Step, reply: SyncReply) -> bool:
    """Answer the member's waiting SyncGroup; return False if no SyncGroup waits."""
    token = member.end_sync()
    if token is not None:
        step.reply(token, reply)
    return token is not None


def dismiss(group: Group, step: Step, member_id: str) -> None:
    """Remove a member and answer its waiting request with UNKNOWN_MEMBER_ID, so that a running client rejoins."""
    member = group.remove(member_id)
    answer_join(member, step, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID))
    answer_sync(member, step, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
