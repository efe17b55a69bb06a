"""F41, F46: a table of the response to each request in each state of a group."""

import pytest
from group_script import AT_ONCE, GroupPlayer, transcript

from barnabas_broker.coordinators.groups.group import GroupState

TO_COMPLETING = """
    >> join a static A v3
    >> join b v3
    >> join a as a-1 static A
"""
TO_STABLE = f"""{TO_COMPLETING}
    >> sync a-1 gen 2 static A
    >> sync b-2 gen 2
    >> stored
"""
STATES = {
    GroupState.EMPTY: f"{TO_STABLE}\n >> leave a-1 b-2\n >> stored",
    GroupState.PREPARING_REBALANCE: f"{TO_STABLE}\n >> join c v3",
    GroupState.COMPLETING_REBALANCE: TO_COMPLETING,
    GroupState.STABLE: TO_STABLE,
    GroupState.DEAD: f"{TO_STABLE}\n >> leave a-1 b-2\n >> stored",
}
WAITS = "waits"
ALL = tuple(GroupState)
LIVING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
PREPARING, COMPLETING, STABLE = LIVING
EMPTY, DEAD = GroupState.EMPTY, GroupState.DEAD

TABLE = [
    # Heartbeats succeed unless a rebalance has begun.
    ("heartbeat b-2 gen 2", (STABLE, COMPLETING), "NONE"),
    ("heartbeat b-2 gen 2", (PREPARING,), "REBALANCE_IN_PROGRESS"),
    ("heartbeat b-2 gen 1", LIVING, "ILLEGAL_GENERATION"),
    ("heartbeat x-9 gen 2", LIVING, "UNKNOWN_MEMBER_ID"),
    ("heartbeat a-1 gen 2 static B", LIVING, "UNKNOWN_MEMBER_ID"),
    ("heartbeat b-2 gen 2 static A", LIVING, "FENCED_INSTANCE_ID"),
    ("heartbeat b-2 gen 2", (EMPTY,), "UNKNOWN_MEMBER_ID"),
    ("heartbeat b-2 gen 2", (DEAD,), "COORDINATOR_NOT_AVAILABLE"),
    # Syncs wait only between the join and the assignment.
    ("sync b-2 gen 2", (STABLE,), "b-2 assigned nothing"),
    ("sync b-2 gen 2", (COMPLETING,), WAITS),
    ("sync b-2 gen 2", (PREPARING,), "b-2 REBALANCE_IN_PROGRESS"),
    ("sync b-2 gen 1", LIVING, "b-2 ILLEGAL_GENERATION"),
    ("sync x-9 gen 2", LIVING, "x-9 UNKNOWN_MEMBER_ID"),
    ("sync b-2 gen 2 static A", LIVING, "b-2 FENCED_INSTANCE_ID"),
    ("sync b-2 gen 2 type connect", LIVING, "b-2 INCONSISTENT_GROUP_PROTOCOL"),
    ("sync b-2 gen 2 protocol sticky", LIVING, "b-2 INCONSISTENT_GROUP_PROTOCOL"),
    ("sync b-2 gen 2", (EMPTY,), "b-2 UNKNOWN_MEMBER_ID"),
    ("sync b-2 gen 2", (DEAD,), "b-2 COORDINATOR_NOT_AVAILABLE"),
    # Joins.
    ("join x as x-9", (EMPTY, *LIVING), "x UNKNOWN_MEMBER_ID x-9"),
    ("join x", (EMPTY, *LIVING), "x MEMBER_ID_REQUIRED x-{}"),
    ("join x type connect", LIVING, "x INCONSISTENT_GROUP_PROTOCOL"),
    ("join x can sticky", LIVING, "x INCONSISTENT_GROUP_PROTOCOL"),
    ("join b as b-2 static A", LIVING, "b FENCED_INSTANCE_ID b-2"),
    ("join b as b-2", (STABLE, COMPLETING), "b joined 2 as b-2, follows a-1, range"),
    ("join b as b-2", (PREPARING,), WAITS),
    ("join x", (DEAD,), "x COORDINATOR_NOT_AVAILABLE"),
    # Commits are allowed to members of the current generation that have an assignment or are about to give it up.
    ("commit b-2 gen 2", (STABLE, PREPARING), "NONE"),
    ("commit b-2 gen 2", (COMPLETING,), "REBALANCE_IN_PROGRESS"),
    ("commit b-2 gen 1", LIVING, "ILLEGAL_GENERATION"),
    ("commit x-9 gen 2", (EMPTY, *LIVING), "UNKNOWN_MEMBER_ID"),
    ("commit stranger gen -1", LIVING, "UNKNOWN_MEMBER_ID"),
    ("commit stranger gen -1", (EMPTY,), "NONE"),
    ("commit stranger gen -1", (DEAD,), "COORDINATOR_NOT_AVAILABLE"),
    # Leaving.
    ("leave x-9", ALL, "UNKNOWN_MEMBER_ID"),
    ("leave static:B", ALL, "UNKNOWN_MEMBER_ID"),
]
CASES = [
    pytest.param(request, state, answer, id=f"{state.value}: {request}")
    for request, states, answer in TABLE
    for state in states
]


@pytest.mark.parametrize(("request_line", "state", "answer"), CASES)
def test_a_request_gets_the_response_of_the_state_of_the_group(
    request_line: str, state: GroupState, answer: str
) -> None:
    player = GroupPlayer(AT_ONCE)
    list(transcript(player, STATES[state]))
    if state is GroupState.DEAD:
        player.group.transition(GroupState.DEAD, player.now)
    assert player.group.state is state
    said = player.play(request_line)
    if answer is WAITS:
        assert said == []
    else:
        assert said[0] == answer.format(player.last_id)
