"""Traces of requests and responses: how members of a group get their assignments."""

from group_script import AT_ONCE, check
from msgspec.structs import replace


def test_a_second_join_or_sync_of_a_member_fails_the_first() -> None:
    check("""
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b v3
        >> join b as b-2
        << b REBALANCE_IN_PROGRESS b-2
        >> join a as a-1
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
        >> sync b-2 gen 2
        >> sync b-2 gen 2
        << b-2 REBALANCE_IN_PROGRESS
        >> sync a-1 gen 2 b-2=P0
        << store generation 2: a-1= b-2=P0
        >> sync a-1 gen 2 b-2=P1
        << a-1 REBALANCE_IN_PROGRESS
        >> stored
        << a-1 assigned nothing
        << b-2 assigned P0
    """)


def test_an_assignment_is_discarded_if_a_new_member_joins_before_it_is_stored() -> None:
    check("""
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> join b v3
        << a-1 REBALANCE_IN_PROGRESS
        >> stored
        >> state
        << PreparingRebalance generation 1: a-1 b-2
        >> join a as a-1
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
    """)


def test_the_pause_grows_with_each_failed_store_of_an_assignment_until_one_succeeds() -> None:
    check("""
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> store fails COORDINATOR_NOT_AVAILABLE
        << a-1 COORDINATOR_NOT_AVAILABLE
        >> wait 100
        >> join a as a-1
        << a joined 2 as a-1, leads of a-1, range
        >> sync a-1 gen 2 a-1=P0
        << store generation 2: a-1=P0
        >> store fails COORDINATOR_NOT_AVAILABLE
        << a-1 COORDINATOR_NOT_AVAILABLE
        >> join a as a-1
        >> wait 199
        >> wait 1
        << a joined 3 as a-1, leads of a-1, range
        >> sync a-1 gen 3 a-1=P0
        << store generation 3: a-1=P0
        >> stored
        << a-1 assigned P0
        >> join a as a-1
        << a joined 4 as a-1, leads of a-1, range
        >> sync a-1 gen 4 a-1=P0
        << store generation 4: a-1=P0
        >> store fails COORDINATOR_NOT_AVAILABLE
        << a-1 COORDINATOR_NOT_AVAILABLE
        >> join a as a-1
        >> wait 100
        << a joined 5 as a-1, leads of a-1, range
    """)


def test_a_new_member_waits_for_the_end_of_the_pause_after_a_failed_store() -> None:
    check("""
        >> join a rebalance 50 v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> store fails COORDINATOR_NOT_AVAILABLE
        << a-1 COORDINATOR_NOT_AVAILABLE
        >> join a as a-1 rebalance 50
        >> join b rebalance 50 v3
        >> wait 99
        >> wait 1
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
    """)


def test_the_group_chooses_the_protocol_with_most_votes_that_all_members_support() -> None:
    check("""
        >> join a can sticky,range v3
        << a joined 1 as a-1, leads of a-1, sticky
        >> join b can range,roundrobin,sticky v3
        >> join c can cooperative v3
        << c INCONSISTENT_GROUP_PROTOCOL
        >> join d type connect v3
        << d INCONSISTENT_GROUP_PROTOCOL
        >> join a as a-1 can sticky,range
        << a joined 2 as a-1, leads of a-1 b-2, sticky
        << b joined 2 as b-2, follows a-1, sticky
        >> join c can range v3
        >> join a as a-1 can sticky,range
        >> join b as b-2 can range,sticky
        << a joined 3 as a-1, leads of a-1 b-2 c-5, range
        << b joined 3 as b-2, follows a-1, range
        << c joined 3 as c-5, follows a-1, range
    """)


def test_a_full_group_refuses_new_members() -> None:
    check(
        """
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b v3
        >> join a as a-1
        << a joined 2 as a-1, leads of a-1 b-2, range
        << b joined 2 as b-2, follows a-1, range
        >> join c v3
        << c GROUP_MAX_SIZE_REACHED
        >> leave b-2
        << NONE
        >> join c v3
        """,
        replace(AT_ONCE, group_max_size=2),
    )


def test_a_new_member_is_removed_if_its_first_join_waits_too_long() -> None:
    check("""
        >> join a rebalance 1000000 session 400000 v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b rebalance 1000000 v3
        >> wait 299999
        >> state
        << PreparingRebalance generation 1: a-1 b-2
        >> wait 1
        << b UNKNOWN_MEMBER_ID
        >> state
        << PreparingRebalance generation 1: a-1
    """)


def test_a_protocol_that_a_member_names_twice_counts_once() -> None:
    check("""
        >> join a can range,range v3
        << a joined 1 as a-1, leads of a-1, range
        >> join a as a-1 can range,sticky,range
        << a joined 2 as a-1, leads of a-1, range
    """)
