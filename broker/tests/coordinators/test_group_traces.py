"""F41, F42, F44, F45, F46: a group's life, as scripts. `group_script` tells their language."""

from group_script import check

from barnabas_broker.coordinators.groups.config import GroupConfig

AT_ONCE = GroupConfig(initial_rebalance_delay_ms=0)

TWO_STABLE = """
    >> join a v3
    << a joined 1 as a-1, leads of a-1, range
    >> join b v3
    >> heartbeat a-1 gen 1
    << REBALANCE_IN_PROGRESS
    >> join a as a-1
    << a joined 2 as a-1, leads of a-1 b-2, range
    << b joined 2 as b-2, follows a-1, range
    >> sync b-2 gen 2
    >> sync a-1 gen 2 a-1=P0 b-2=P1
    << store generation 2: a-1=P0 b-2=P1
    >> stored
    << a-1 assigned P0
    << b-2 assigned P1
"""


def test_a_new_group_waits_for_more_members_and_each_of_them_extends_the_wait() -> None:
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
    )


def test_the_first_wait_ends_with_the_rebalance_timeout_however_many_come() -> None:
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
    )


def test_members_that_all_leave_during_the_first_wait_leave_an_empty_group() -> None:
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
    )


def test_a_member_that_joins_is_assigned_only_what_the_log_holds() -> None:
    check(TWO_STABLE, AT_ONCE)


def test_a_member_that_dies_while_others_join_does_not_hold_them_up() -> None:
    check(
        TWO_STABLE
        + """
        >> wait 5000
        >> heartbeat a-1 gen 2
        << NONE
        >> heartbeat b-2 gen 2
        << NONE
        >> join a as a-1
        >> wait 9999
        >> wait 1
        << a joined 3 as a-1, leads of a-1, range
        """,
        AT_ONCE,
    )


def test_a_member_that_lives_but_does_not_join_again_is_dropped_at_the_rebalance_timeout() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_member_that_never_asks_for_its_assignment_is_removed() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_leader_that_never_assigns_is_replaced() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_members_leave_one_by_one_until_the_group_is_empty() -> None:
    check(
        TWO_STABLE
        + """
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
        """,
        AT_ONCE,
    )


def test_members_that_leave_together_get_a_result_each() -> None:
    check(
        TWO_STABLE
        + """
        >> leave a-1 x-9 b-2
        << NONE
        << UNKNOWN_MEMBER_ID
        << NONE
        << store generation 3: empty
        >> state
        << Empty generation 3: nobody
        """,
        AT_ONCE,
    )


def test_the_last_one_missing_leaves_and_the_join_is_complete() -> None:
    check(
        TWO_STABLE
        + """
        >> join a as a-1
        >> leave b-2
        << NONE
        << a joined 3 as a-1, leads of a-1, range
        """,
        AT_ONCE,
    )


def test_a_member_that_leaves_while_its_join_waits_is_answered() -> None:
    check(
        TWO_STABLE
        + """
        >> join b as b-2 topics weather
        >> leave b-2
        << NONE
        << b UNKNOWN_MEMBER_ID
        >> join a as a-1
        << a joined 3 as a-1, leads of a-1, range
        """,
        AT_ONCE,
    )


def test_a_member_id_given_out_holds_up_the_join_until_it_is_used_or_expires() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_member_id_given_out_is_given_back_by_leaving() -> None:
    check(
        """
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> join b
        << b MEMBER_ID_REQUIRED b-2
        >> leave b-2
        << NONE
        >> heartbeat a-1 gen 1
        << NONE
        """,
        AT_ONCE,
    )


def test_a_follower_that_joins_again_unchanged_disturbs_nobody() -> None:
    check(
        TWO_STABLE
        + """
        >> join b as b-2
        << b joined 2 as b-2, follows a-1, range
        >> sync b-2 gen 2
        << b-2 assigned P1
        >> heartbeat a-1 gen 2
        << NONE
        """,
        AT_ONCE,
    )


def test_a_follower_that_changed_its_subscription_starts_a_rebalance() -> None:
    check(
        TWO_STABLE
        + """
        >> join b as b-2 topics flights,weather
        >> heartbeat a-1 gen 2
        << REBALANCE_IN_PROGRESS
        """,
        AT_ONCE,
    )


def test_a_leader_that_joins_again_always_starts_a_rebalance() -> None:
    check(
        TWO_STABLE
        + """
        >> join a as a-1
        >> heartbeat b-2 gen 2
        << REBALANCE_IN_PROGRESS
        """,
        AT_ONCE,
    )


def test_a_lost_join_answer_is_given_again_before_the_assignment() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_second_join_or_sync_of_a_member_ends_the_wait_of_the_first() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_an_assignment_that_is_overtaken_by_a_new_member_reaches_nobody() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_an_assignment_that_cannot_be_stored_is_refused_and_the_group_tries_anew() -> None:
    check(
        """
        >> join a v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> store fails COORDINATOR_NOT_AVAILABLE
        << a-1 COORDINATOR_NOT_AVAILABLE
        >> join a as a-1
        >> wait 100
        << a joined 2 as a-1, leads of a-1, range
        """,
        AT_ONCE,
    )


def test_after_every_assignment_that_cannot_be_stored_the_pause_is_longer_until_one_is_stored() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_who_joins_in_the_pause_after_a_failed_store_waits_for_its_end_too() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_static_member_comes_back_without_a_rebalance_and_its_old_id_is_fenced() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_static_leader_that_comes_back_is_told_to_assign_nothing() -> None:
    check(
        """
        >> join a static A v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> stored
        << a-1 assigned P0
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
        """,
        AT_ONCE,
    )


def test_a_static_member_that_comes_back_for_other_topics_starts_a_rebalance() -> None:
    check(
        """
        >> join a static A v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> stored
        << a-1 assigned P0
        >> join a static A topics weather
        << a joined 2 as a-2, leads of a-2, range
        """,
        AT_ONCE,
    )


def test_a_static_member_that_comes_back_before_the_assignment_starts_a_rebalance() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_static_member_that_starts_twice_fences_its_first_self() -> None:
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
    )


def test_a_static_member_whose_new_id_cannot_be_stored_is_told_so() -> None:
    check(
        """
        >> join a static A v3
        << a joined 1 as a-1, leads of a-1, range
        >> sync a-1 gen 1 a-1=P0
        << store generation 1: a-1=P0
        >> stored
        << a-1 assigned P0
        >> join a static A
        << store generation 1: a-2=P0
        >> store fails NOT_COORDINATOR
        << a NOT_COORDINATOR
        """,
        AT_ONCE,
    )


def test_an_absent_static_member_keeps_its_place_until_its_session_ends() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_static_member_can_be_removed_by_its_instance_id() -> None:
    check(
        """
        >> join a static A v3
        << a joined 1 as a-1, leads of a-1, range
        >> leave static:B static:A
        << UNKNOWN_MEMBER_ID
        << NONE
        << store generation 2: empty
        """,
        AT_ONCE,
    )


def test_the_protocol_with_most_votes_among_those_that_all_know_is_chosen() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_a_full_group_takes_nobody_else() -> None:
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
        AT_ONCE._replace(max_size=2),
    )


def test_a_first_join_that_waits_too_long_is_dropped_as_its_client_may_be_gone() -> None:
    check(
        """
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
        """,
        AT_ONCE,
    )


def test_while_members_join_again_the_old_generation_may_commit_and_after_that_only_the_assigned() -> None:
    check(
        TWO_STABLE
        + """
        >> commit a-1 gen 2
        << NONE
        >> commit stranger gen -1
        << UNKNOWN_MEMBER_ID
        >> join b as b-2 topics weather
        >> commit a-1 gen 2
        << NONE
        >> join a as a-1
        << a joined 3 as a-1, leads of a-1 b-2, range
        << b joined 3 as b-2, follows a-1, range
        >> commit a-1 gen 2
        << ILLEGAL_GENERATION
        >> commit a-1 gen 3
        << REBALANCE_IN_PROGRESS
        >> leave a-1 b-2
        << NONE
        << NONE
        << store generation 4: empty
        >> commit stranger gen -1
        << NONE
        >> commit a-1 gen 3
        << UNKNOWN_MEMBER_ID
        """,
        AT_ONCE,
    )


def test_a_protocol_that_a_member_names_twice_counts_once() -> None:
    check(
        """
        >> join a can range,range v3
        << a joined 1 as a-1, leads of a-1, range
        >> join a as a-1 can range,sticky,range
        << a joined 2 as a-1, leads of a-1, range
        """,
        AT_ONCE,
    )
