"""The liveness of a group's members: heartbeats, LeaveGroup requests, and deadlines."""

from collections.abc import Iterable

from barnabas_broker.coordinators.groups import rebalance
from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import LeaveResult, MemberIdentity, Step
from barnabas_broker.coordinators.runtime.alarms import Now
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
