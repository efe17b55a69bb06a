"""Traces of requests and responses: static members (KIP-345) of a group."""

from group_script import DEFAULTS, check
from group_traces import STATIC_ALONE


def test_a_static_member_returns_without_a_rebalance_and_its_old_id_is_fenced() -> None:
    check("""
        >> join a static A v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b static B v3
        >> join a as a-1 static A
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
        >> sync a-1 gen 2 a-1=P0 b-2=P1
        << store generation 2: a-1=P0 b-2=P1
        >> stored
        << a-1 assigned P0
        >> sync b-2 gen 2
        << b-2 assigned P1
        >> join b static B
        << store generation 2: a-1=P0 b-3=P1
        >> stored
        << b joined 2 as b-3, follows a-1, range
        >> sync b-3 gen 2 static B
        << b-3 assigned P1
        >> heartbeat b-2 gen 2 static B
        << FENCED_INSTANCE_ID
        >> heartbeat a-1 gen 2 static A
        << NONE
    """)


def test_a_returning_static_leader_is_asked_to_skip_the_assignment() -> None:
    check(f"""{STATIC_ALONE}
        >> join a static A
        << store generation 1: a-2=P0
        >> stored
        << a joined 1 as a-2, leads of a-2, range skips assignment
        >> sync a-2 gen 1 static A
        << a-2 assigned P0
        >> join a static A v8
        << store generation 1: a-3=P0
        >> stored
        << a joined 1 as a-3, follows a-2, range
    """)


def test_a_static_member_that_returns_with_other_topics_starts_a_rebalance() -> None:
    check(f"""{STATIC_ALONE}
        >> join a static A topics weather
        << a joined 2 as a-2, leads of a-2, range
    """)


def test_a_static_member_that_returns_before_the_assignment_starts_a_rebalance() -> None:
    check("""
        >> join a static A v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> join a static A
        << a-1 FENCED_INSTANCE_ID
        << a joined 2 as a-2, leads of a-2, range
        >> stored
        >> sync a-2 gen 2 a-2=P0
        << store generation 2: a-2=P0
        >> stored
        << a-2 assigned P0
    """)


def test_a_second_static_member_with_the_same_instance_id_fences_the_first() -> None:
    check(
        """
        >> join a static A
        >> join a static A
        << a FENCED_INSTANCE_ID a-1
        >> wait 3000
        << a joined 1 as a-2, leads of a-2, range
        >> heartbeat a-1 gen 1 static A
        << FENCED_INSTANCE_ID
        """,
        DEFAULTS,
    )


def test_a_static_join_fails_if_the_new_member_id_cannot_be_stored() -> None:
    check(f"""{STATIC_ALONE}
        >> join a static A
        << store generation 1: a-2=P0
        >> store fails NOT_COORDINATOR
        << a NOT_COORDINATOR
    """)


def test_an_absent_static_member_keeps_its_assignment_until_its_session_times_out() -> None:
    check("""
        >> join a static A rebalance 8000 session 60000 v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b rebalance 8000 v3
        >> join a as a-1 static A rebalance 8000 session 60000
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
        >> sync a-1 gen 2 a-1=P0 b-2=P1
        << store generation 2: a-1=P0 b-2=P1
        >> stored
        << a-1 assigned P0
        >> sync b-2 gen 2
        << b-2 assigned P1
        >> join b as b-2 topics weather rebalance 8000
        >> wait 8000
        << b joined 3 as b-2, leads of a-1 b-2, range
        >> sync b-2 gen 3 a-1=P0 b-2=P1
        << store generation 3: a-1=P0 b-2=P1
        >> stored
        << b-2 assigned P1
        >> heartbeat b-2 gen 3
        << NONE
        >> join a static A
        << store generation 3: a-3=P0 b-2=P1
        >> stored
        << a joined 3 as a-3, follows b-2, range
        >> sync a-3 gen 3 static A
        << a-3 assigned P0
        >> wait 9999
        >> heartbeat b-2 gen 3
        << NONE
        >> state
        << Stable generation 3: a-3 b-2
        >> wait 1
        >> state
        << PreparingRebalance generation 3: b-2
        >> heartbeat a-3 gen 3 static A
        << UNKNOWN_MEMBER_ID
    """)


def test_a_static_member_can_be_removed_by_its_instance_id() -> None:
    check("""
        >> join a static A v3
        << a joined 1 as a-1, leads of a-1, range
        >> leave static:B static:A
        << UNKNOWN_MEMBER_ID
        << NONE
        << store generation 2: empty
    """)
