"""The handling of SyncGroup requests: the leader's assignment is stored, then sent to all members."""

from barnabas_broker.coordinators.groups import rebalance
from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.member import Member
from barnabas_broker.coordinators.groups.messages import Append, JoinReply, Step, SyncReply, SyncRequest, Token
from barnabas_broker.coordinators.groups.stored_group import metadata
from barnabas_core.errors import ErrorCode


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
        step.append = Append(metadata(group, request.assignments))


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
