"""The join phase: how it begins, when it is complete, and what it ends in. Called by all the other phases.

A phase ends when every member has joined again, or at its deadline; dynamic members that did not join are dropped,
static ones stay until their session ends. Whenever somebody goes, the caller asks `complete_if_joined` again: a phase
never waits for a member that is no longer there.
"""

from typing import Final

from barnabas_broker.coordinators.groups.group import Group, GroupState, JoinDeadline
from barnabas_broker.coordinators.groups.member import Member
from barnabas_broker.coordinators.groups.messages import Append, JoinReply, Step, SyncReply
from barnabas_broker.coordinators.groups.stored_group import metadata
from barnabas_core.errors import ErrorCode

_FIRST_PAUSE_MS: Final = 100
"""The clients' own pause between two tries (`retry.backoff.ms`), for those that make none."""
_PAUSE_MS_MAX: Final = 5_000
_PAUSE_DOUBLINGS_MAX: Final = 6
"""More would not be a longer pause."""


def begin_or_complete(group: Group, step: Step, reason: str) -> None:
    """Members changed: begin a rebalance, or see whether the one that is on is complete now."""
    if group.can_rebalance:
        begin(group, step, reason)
    else:
        complete_if_joined(group, step)


def begin(group: Group, step: Step, reason: str) -> None:
    """Enter the join phase. From Empty it waits a while for others to come, too (KIP-134)."""
    step.notes.append(f"rebalance begins in state {group.state.value}, generation {group.generation}: {reason}")
    _enter(group, step)
    complete_if_joined(group, step)


def begin_after_failure(group: Group, step: Step, reason: str) -> None:
    """Enter the join phase because the last assignment could not be stored. The next one most likely cannot either, and
    some clients join again at once: so the phase lasts a pause at least, and only the first failure in a row is logged.
    """
    pause_ms = min(_FIRST_PAUSE_MS << min(group.failed_stores, _PAUSE_DOUBLINGS_MAX), _PAUSE_MS_MAX)
    group.store_failed()
    if group.failed_stores == 1:
        most = f"trying again after pauses of up to {_PAUSE_MS_MAX // 1000} s"
        step.notes.append(f"rebalance begins, generation {group.generation}: {reason}; {most}")
    _enter(group, step, pause_ms)


def _enter(group: Group, step: Step, pause_ms: int = 0) -> None:
    """Members that wait for an assignment of the old generation have to join again."""
    for member in group.members.values():
        if answer_sync(member, step, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)):
            group.touch(member, step.now)
    now_ms, timeout_ms = step.now.steady_ms, group.rebalance_timeout_ms
    delay_ms = step.config.initial_rebalance_delay_ms if group.state is GroupState.EMPTY else 0
    deadline = JoinDeadline(
        at_ms=now_ms + max(delay_ms or timeout_ms, pause_ms),
        is_initial=delay_ms > 0,
        delay_ms=delay_ms,
        remaining_ms=max(timeout_ms - delay_ms, 0),
        paused_until_ms=now_ms + pause_ms if pause_ms else 0,
    )
    group.begin_join_phase(deadline, step.now)


def complete_if_joined(group: Group, step: Step) -> None:
    """End the join phase if everybody is there. The first phase after Empty runs its time: more may come."""
    deadline = group.join_deadline
    if deadline is None or deadline.is_initial or deadline.paused_until_ms > step.now.steady_ms:
        return
    if not group.pending_joins and all(member.awaiting_join is not None for member in group.members.values()):
        complete(group, step)


def pause_over(group: Group, step: Step) -> None:
    """The join phase may end from now on."""
    assert group.join_deadline is not None
    group.join_deadline.end_pause()
    complete_if_joined(group, step)


def deadline_passed(group: Group, step: Step) -> None:
    """The join phase's time is over: extend it if it is the first and somebody came meanwhile, else end it."""
    deadline = group.join_deadline
    assert deadline is not None
    if not (deadline.new_member_added and deadline.remaining_ms):
        complete(group, step)
        return
    delay_ms = min(step.config.initial_rebalance_delay_ms, deadline.remaining_ms)
    remaining_ms = max(deadline.remaining_ms - deadline.delay_ms, 0)
    group.await_joins(JoinDeadline(step.now.steady_ms + delay_ms, True, delay_ms, remaining_ms))


def complete(group: Group, step: Step) -> None:
    """End the join phase: the next generation begins with those who joined; with nobody left the group is Empty."""
    members = list(group.members.values())
    absent = [member for member in members if member.awaiting_join is None]
    for member in absent:
        if member.instance_id is None:
            step.notes.append(f"member {member.member_id} did not join again and is dropped")
            group.remove(member.member_id)
    if group.members and len(absent) == len(members):
        step.notes.append("nobody joined again: waiting for the sessions of the static members to end")
        pause_ms = max(group.rebalance_timeout_ms, _PAUSE_MS_MAX)  # A client may ask for none.
        group.await_joins(JoinDeadline(step.now.steady_ms + pause_ms))
        return
    group.begin_generation(step.now)
    if not group.members:
        step.notes.append(f"generation {group.generation} is empty")
        step.append = Append(metadata(group, {}))
    elif not group.failed_stores:
        step.notes.append(f"generation {group.generation} has {len(group.members)} members")
    for member in group.members.values():
        answer_join(member, step, group.join_reply(member))


def answer_join(member: Member, step: Step, reply: JoinReply) -> None:
    """Answer the member's waiting join, if there is one."""
    token = member.end_join()
    if token is not None:
        step.reply(token, reply)


def answer_sync(member: Member, step: Step, reply: SyncReply) -> bool:
    """Answer the member's waiting sync; False where there is none. Its session runs again from here."""
    token = member.end_sync()
    if token is not None:
        step.reply(token, reply)
    return token is not None


def dismiss(group: Group, step: Step, member_id: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
    """Remove a member and answer what it waits for, so that a client that is still there joins anew."""
    member = group.remove(member_id)
    answer_join(member, step, JoinReply(error))
    answer_sync(member, step, SyncReply(error))
