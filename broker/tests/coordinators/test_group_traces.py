"""F41, F42, F44, F45, F46: scripts of a group. `group_script` describes their language."""

from group_script import DEFAULTS, check
from group_traces import TWO_STABLE


def test_each_new_member_extends_the_first_wait_of_a_new_group() -> None:
    check(
        """
        >> join a
        << a MEMBER_ID_REQUIRED a-1
        >> join a as a-1
        >> state
        << PreparingRebalance generation 0: a-1
        >> wait 2000
        >> join b
        << b MEMBER_ID_REQUIRED b-2
        >> join b as b-2
        >> wait 3999
        >> state
        << PreparingRebalance generation 0: a-1 b-2
        >> wait 1
        << a joined 1 as a-1, leads of a-1 b-2, range
        << b joined 1 as b-2, follows a-1, range
        """,
        DEFAULTS,
    )


def test_the_first_wait_ends_at_the_rebalance_timeout_although_members_join() -> None:
    check(
        """
        >> join a rebalance 5000 v3
        >> wait 2000
        >> join b rebalance 5000 v3
        >> wait 2000
        >> join c rebalance 5000 v3
        >> wait 1000
        << a joined 1 as a-1, leads of a-1 b-2 c-3, range
        << b joined 1 as b-2, follows a-1, range
        << c joined 1 as c-3, follows a-1, range
        """,
        DEFAULTS,
    )


def test_a_group_is_empty_if_all_members_leave_during_the_first_wait() -> None:
    check(
        """
        >> join a v3
        >> leave a-1
        << NONE
        << a UNKNOWN_MEMBER_ID
        >> wait 3000
        << store generation 1: empty
        >> stored
        >> state
        << Empty generation 1: nobody
        """,
        DEFAULTS,
    )


def test_a_rebalance_ends_when_the_session_of_a_dead_member_expires() -> None:
    check(f"""{TWO_STABLE}
        >> wait 5000
        >> heartbeat a-1 gen 2
        << NONE
        >> heartbeat b-2 gen 2
        << NONE
        >> join a as a-1
        >> wait 9999
        >> wait 1
        << a joined 3 as a-1, leads of a-1, range
    """)


def test_a_live_member_that_does_not_rejoin_is_removed_at_the_rebalance_timeout() -> None:
    check("""
        >> join a rebalance 15000 v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b rebalance 15000 v3
        >> join a as a-1 rebalance 15000
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
        >> sync a-1 gen 2 a-1=P0 b-2=P1
        << store generation 2: a-1=P0 b-2=P1
        >> stored
        << a-1 assigned P0
        >> sync b-2 gen 2
        << b-2 assigned P1
        >> join a as a-1 rebalance 15000
        >> wait 9000
        >> heartbeat b-2 gen 2
        << REBALANCE_IN_PROGRESS
        >> wait 6000
        << a joined 3 as a-1, leads of a-1, range
        >> heartbeat b-2 gen 2
        << UNKNOWN_MEMBER_ID
    """)


def test_a_member_that_never_syncs_is_removed_at_the_rebalance_timeout() -> None:
    check("""
        >> join a session 1800000 rebalance 20000 v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b session 1800000 rebalance 20000 v3
        >> join a as a-1 session 1800000 rebalance 20000
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
        >> sync a-1 gen 2 a-1=P0 b-2=P1
        << store generation 2: a-1=P0 b-2=P1
        >> stored
        << a-1 assigned P0
        >> wait 20000
        >> join a as a-1
        << a joined 3 as a-1, leads of a-1, range
    """)


def test_a_leader_that_never_assigns_is_replaced() -> None:
    check("""
        >> join a session 1800000 rebalance 20000 v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b session 1800000 rebalance 20000 v3
        >> join a as a-1 session 1800000 rebalance 20000
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
        >> sync b-2 gen 2
        >> wait 20000
        << b-2 REBALANCE_IN_PROGRESS
        >> join b as b-2
        << b joined 3 as b-2, leads of b-2, range
    """)


def test_members_leave_one_by_one_until_the_group_is_empty() -> None:
    check(f"""{TWO_STABLE}
        >> leave a-1
        << NONE
        >> join b as b-2
        << b joined 3 as b-2, leads of b-2, range
        >> leave b-2
        << NONE
        << store generation 4: empty
        >> stored
        >> state
        << Empty generation 4: nobody
        >> join c v3
        << c joined 5 as c-3, leads of c-3, range
    """)


def test_members_that_leave_together_get_one_result_each() -> None:
    check(f"""{TWO_STABLE}
        >> leave a-1 x-9 b-2
        << NONE
        << UNKNOWN_MEMBER_ID
        << NONE
        << store generation 3: empty
        >> state
        << Empty generation 3: nobody
    """)


def test_a_rebalance_ends_when_the_last_missing_member_leaves() -> None:
    check(f"""{TWO_STABLE}
        >> join a as a-1
        >> leave b-2
        << NONE
        << a joined 3 as a-1, leads of a-1, range
    """)


def test_the_waiting_join_of_a_member_that_leaves_gets_a_response() -> None:
    check(f"""{TWO_STABLE}
        >> join b as b-2 topics weather
        >> leave b-2
        << NONE
        << b UNKNOWN_MEMBER_ID
        >> join a as a-1
        << a joined 3 as a-1, leads of a-1, range
    """)


def test_an_unused_member_id_delays_the_rebalance_until_it_expires() -> None:
    check("""
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> stored
        << a-1 assigned P0
        >> join b
        << b MEMBER_ID_REQUIRED b-2
        >> heartbeat a-1 gen 1
        << NONE
        >> join c v3
        >> join a as a-1
        >> wait 10000
        << a joined 2 as a-1, leads of a-1 c-3, range
        << c joined 2 as c-3, follows a-1, range
        >> join b as b-2
        << b UNKNOWN_MEMBER_ID b-2
    """)


def test_an_unused_member_id_does_not_delay_the_first_generation_of_an_empty_group() -> None:
    check("""
        >> join a
        << a MEMBER_ID_REQUIRED a-1
        >> join b v3
        << b joined 1 as b-2, leads of b-2, range
    """)


def test_an_unused_member_id_does_not_keep_a_group_whose_members_left_from_becoming_empty() -> None:
    check("""
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b
        << b MEMBER_ID_REQUIRED b-2
        >> leave a-1
        << NONE
        << store generation 2: empty
    """)


def test_a_rebalance_is_not_started_by_a_pending_member_id_that_leaves() -> None:
    check("""
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b
        << b MEMBER_ID_REQUIRED b-2
        >> leave b-2
        << NONE
        >> heartbeat a-1 gen 1
        << NONE
    """)


def test_a_follower_that_joins_with_another_subscription_starts_a_rebalance() -> None:
    check(f"""{TWO_STABLE}
        >> join b as b-2 topics flights,weather
        >> heartbeat a-1 gen 2
        << REBALANCE_IN_PROGRESS
    """)


def test_a_leader_that_joins_again_always_starts_a_rebalance() -> None:
    check(f"""{TWO_STABLE}
        >> join a as a-1
        >> heartbeat b-2 gen 2
        << REBALANCE_IN_PROGRESS
    """)


def test_a_join_response_is_repeated_until_the_assignment() -> None:
    check("""
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b v3
        >> join a as a-1
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
        >> join b as b-2
        << b joined 2 as b-2, follows a-1, range
        >> join a as a-1
        << a joined 2 as a-1, leads of a-1 b-2, range
        >> join b as b-2 topics weather
        >> sync a-1 gen 2 a-1=P0
        << a-1 REBALANCE_IN_PROGRESS
        >> join a as a-1
        << a joined 3 as a-1, leads of a-1 b-2, range
        << b joined 3 as b-2, follows a-1, range
    """)
