"""A classic group: each request in each state (`group_states.py`, `group_requests.py`), and the answers to others."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from matrix.cells import Cell, Difference, Subject
from matrix.group_requests import Request, requests
from matrix.group_states import STATES
from matrix.group_world import IDLE, READ, GroupWorld
from matrix.nodes import Nodes
from matrix.talk import WAITS, Broker, in_words

SAME: Final = "same"


def _ask(nodes: Nodes) -> Iterator[tuple[Cell, str]]:
    nodes.set_transaction_version(2)
    for topic in (READ, IDLE):
        nodes.create_topic(topic, 1)
    with closing(Broker(nodes.port, nodes.patience_s)) as broker:
        for state in STATES:
            yield from _in_state(nodes, broker, state)


def _in_state(nodes: Nodes, broker: Broker, state: str) -> Iterator[tuple[Cell, str]]:
    """Yield the outcomes of a state's cells. A group that a cell has not changed serves the next cell."""
    world, before = None, ""
    for request in requests(state):
        cell = Cell(state, f"{request.name} v{request.version}", request.title)
        if not nodes.asks(cell):
            continue
        if world is None:
            world = GroupWorld(broker, nodes.fresh("group"))
            STATES[state](world)
            before = world.state()
        answer, after = _outcome(world, request)
        yield cell, f"{answer} -> {SAME if after == before else after}"
        if after != before or answer == WAITS or request.changes_ids(answer):
            world.close()
            world = None
    if world is not None:
        world.close()


def _outcome(world: GroupWorld, request: Request) -> tuple[str, str]:
    """Return the answer to a request, and then what clients see of the group."""
    own = {"group_id": world.group} if request.of_group else {}
    pending = world.broker.begin(request.name, request.version, {**own, **request.fields(world)})
    answer = world.broker.settled(pending) if request.may_wait else pending.answer()
    _limit(world, request, answer)
    text, state = in_words(answer, request.version, world.names), world.state()
    if answers := world.answers():
        state += f" {{{answers}}}"
    pending.close()
    return text, state


def _limit(world: GroupWorld, request: Request, answer: Any) -> None:
    """Leave out other groups, and give a new member id the symbol `new`."""
    if answer is not None and request.name == "ListGroups":
        answer.groups = [each for each in answer.groups if each.group_id == world.group]
    if answer is not None and request.name == "JoinGroup" and answer.member_id not in world.ids.values():
        world.ids["new"] = answer.member_id


NO_TRACE: Final = "a group exists from its first committed offset or generation on, so an abort leaves no trace"
DIFFERENCES: Final = (
    *(Difference(f"{state} | TxnOffsetCommit v5 | *", "* -> Dead *", NO_TRACE) for state in ("unknown", "deleted")),
    Difference("unknown, open transaction | OffsetCommit v? | *", "* -> Empty *", NO_TRACE),
    Difference("unknown, open transaction | OffsetDelete v0 | *", "error_code=GROUP_ID_NOT_FOUND -> same", NO_TRACE),
    Difference("unknown, open transaction | DescribeGroups v? | *", "*group_state=Dead*", NO_TRACE),
    Difference("unknown, open transaction | DeleteGroups v2 | *", "*GROUP_ID_NOT_FOUND*", NO_TRACE),
    Difference("unknown, open transaction | ListGroups v? | *", "nothing -> same", NO_TRACE),
    Difference(
        "* | JoinGroup v9 | P/iX",
        "error_code=UNKNOWN_MEMBER_ID *",
        "a client that joins with an instance id and a pending id joins again without an id; Kafka has a bug here",
    ),
    Difference(
        "Completing, B waits | SyncGroup v? | B, *",
        "* {SyncGroup of B: error_code=REBALANCE_IN_PROGRESS}",
        "no request waits for ever: the first SyncGroup is answered when its member sends another",
    ),
    Difference(
        "Completing, B waits | LeaveGroup v5 | *",
        "* {SyncGroup of B: error_code=UNKNOWN_MEMBER_ID}",
        "no request waits for ever: the SyncGroup is answered when its member leaves",
    ),
    Difference(
        "*Preparing | JoinGroup v? | A*",
        "waits -> *{JoinGroup of A: error_code=REBALANCE_IN_PROGRESS member_id=A}",
        "no request waits for ever: the first JoinGroup is answered when its member sends another",
    ),
    Difference(
        "Stable, pending id | LeaveGroup v? | P*",
        "* -> same",
        "a client that never joined gives its id back without a rebalance",
    ),
    Difference(
        "static Stable | JoinGroup v9 | none/i?, changed",
        "waits -> PreparingRebalance *",
        "a static member that comes back with other topics would go without their partitions",
    ),
)
SUBJECTS: Final = (Subject("groups", _ask, DIFFERENCES),)
