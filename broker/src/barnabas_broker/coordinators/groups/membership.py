"""The life of a group's members between rebalances: SyncGroup, heartbeats, LeaveGroup requests, and deadlines."""

from collections.abc import Iterable

from barnabas_broker.coordinators.groups import rebalance
from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import (
    Append,
    JoinReply,
    LeaveResult,
    Member,
    MemberIdentity,
    Step,
    SyncReply,
    SyncRequest,
    Token,
)
from barnabas_broker.coordinators.groups.rebalance import group_metadata
from barnabas_broker.coordinators.runtime.turns import Now
from barnabas_core.errors import ErrorCode


def heartbeat(group: Group, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
    """Extend a member's session; return NONE, REBALANCE_IN_PROGRESS if the member has to rejoin, or another error."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    group.touch(group.members[member_id], now)
    preparing = group.state is GroupState.PREPARING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE


def leave(group: Group, identities: Iterable[MemberIdentity], step: Step) -> list[LeaveResult]:
    """Remove the members that leave, and begin one rebalance for all of them; return a result for each member."""
    size = len(group.members)
    results = [LeaveResult(identity, _leave_one(group, identity, step)) for identity in identities]
    _some_went(group, step, size, "members left")
    return results


def _leave_one(group: Group, identity: MemberIdentity, step: Step) -> ErrorCode:
    member_id = identity.member_id
    if not member_id and identity.instance_id is not None:
        member_id = group.static_members.get(identity.instance_id, "")
    if group.take_back_id(member_id):
        return ErrorCode.NONE
    error = group.check_member(member_id, identity.instance_id)
    if error is ErrorCode.NONE:
        rebalance.dismiss(group, step, member_id)
        step.notes.append(f"member {member_id} left: {identity.reason or 'no reason given'}")
    return error


def on_time(group: Group, step: Step) -> None:
    """Handle every deadline that has passed, and set `wake_ms` to the next deadline."""
    size = len(group.members)
    _expire_members(group, step)
    _some_went(group, step, size, "members were removed")
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= step.now.steady_ms:
        _expire_syncs(group, step)
    _end_join_phase(group, step)
    group.reset_alarm()


def _end_join_phase(group: Group, step: Step) -> None:
    deadline = group.join_deadline
    if deadline is None:
        return
    if deadline.at_ms <= step.now.steady_ms:
        rebalance.deadline_passed(group, step)
    elif 0 < deadline.paused_until_ms <= step.now.steady_ms:
        rebalance.pause_over(group, step)


def _expire_members(group: Group, step: Step) -> None:
    """Remove members whose session timed out, and member ids whose clients did not join in time."""
    pending = [member_id for member_id, at_ms in group.pending_joins.items() if at_ms <= step.now.steady_ms]
    for member_id in pending:
        group.take_back_id(member_id)
        step.notes.append(f"no client joined with the member id {member_id} in time")
    silent = [
        member.member_id
        for member in group.members.values()
        if member.session_deadline_ms <= step.now.steady_ms and not member.waits
    ]
    for member_id in silent:
        step.notes.append(f"member {member_id} sent no heartbeat within its session timeout")
        rebalance.dismiss(group, step, member_id)


def _some_went(group: Group, step: Step, size_before: int, reason: str) -> None:
    """Begin a rebalance if members were removed; in a join phase, end the phase if all remaining members joined."""
    if len(group.members) < size_before and group.can_rebalance:
        rebalance.begin(group, step, reason)
    else:
        rebalance.complete_if_joined(group, step)


def _expire_syncs(group: Group, step: Step) -> None:
    """Remove the members that joined but did not send SyncGroup, and begin a rebalance."""
    for member_id in sorted(group.pending_syncs):
        step.notes.append(f"member {member_id} did not send SyncGroup in time, and is removed from the group")
        rebalance.dismiss(group, step, member_id)
    rebalance.begin(group, step, "members that did not send SyncGroup were removed")


def sync(group: Group, request: SyncRequest, token: Token, step: Step) -> None:
    """Handle a SyncGroup. Each answer waits until the leader's assignment is stored."""
    error = _refusal(group, request)
    if error is not ErrorCode.NONE:
        step.reply(token, SyncReply(error))
        return
    member = group.members[request.member_id]
    group.has_synced(member)
    if group.state is GroupState.STABLE:
        group.touch(member, step.now)
        step.reply(token, _assigned(group, member))
    else:
        _wait(group, member, request, token, step)


def _refusal(group: Group, request: SyncRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
        None,
        group.protocol_name,
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _wait(group: Group, member: Member, request: SyncRequest, token: Token, step: Step) -> None:
    """Let the member wait for its assignment; if this is the leader's first SyncGroup, write the assignments.

    An earlier SyncGroup of the member that still waits is answered with REBALANCE_IN_PROGRESS.
    """
    rebalance.answer_sync(member, step, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
    if group.await_assignment(member, token):
        step.append = Append(group_metadata(group, request.assignments))


def _assigned(group: Group, member: Member) -> SyncReply:
    return SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def appended(group: Group, append: Append, step: Step) -> None:
    """Answer all waiting SyncGroups, or the JoinGroup of a restarted static member, once the group record is committed.

    Do nothing if the group has begun another generation in the meantime.
    """
    if append.metadata.generation != group.generation:
        return
    if append.rejoin is not None:
        _answer_rejoin(group, append, append.rejoin.reply, step)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        _become_stable(group, append, step)


def _become_stable(group: Group, append: Append, step: Step) -> None:
    tries = f", after {group.failed_stores} assignments that could not be stored" if group.failed_stores else ""
    step.notes.append(f"generation {group.generation} is stable{tries}")
    group.become_stable({member.member_id: member.assignment for member in append.metadata.members}, step.now)
    for member in group.members.values():
        if rebalance.answer_sync(member, step, _assigned(group, member)):
            group.touch(member, step.now)


def _answer_rejoin(group: Group, append: Append, reply: JoinReply, step: Step) -> None:
    assert append.rejoin is not None
    member = group.members.get(append.rejoin.reply.member_id)
    if group.state is GroupState.STABLE and member is not None and member.awaiting_join == append.rejoin.token:
        rebalance.answer_join(member, step, reply)
        group.touch(member, step.now)


def append_failed(group: Group, append: Append, error: ErrorCode, step: Step) -> None:
    """Answer the waiting members with the error after a group record could not be written.

    Begin another rebalance if the record contained an assignment.
    """
    if append.metadata.generation != group.generation:
        return
    if append.rejoin is not None:
        _answer_rejoin(group, append, JoinReply(error), step)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            if rebalance.answer_sync(member, step, SyncReply(error)):
                group.touch(member, step.now)
        rebalance.begin_after_failure(group, step, f"the leader's assignment could not be stored: {error.name}")
