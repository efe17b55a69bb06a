"""A short silence of brokers is ignored, and a long one is reported."""

from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.reconcile.reconcile_parts import PATIENCE_S, LastKnownState
from harness.manual_clock import ManualClock

STATE = ClusterState({0: None}, {})


def test_the_last_state_of_brokers_counts_until_they_are_silent_for_too_long() -> None:
    clock = ManualClock()
    answers = LastKnownState(clock.monotonic_s)
    answers.reported(STATE)
    answers.missed("timed out")
    clock.pass_time(PATIENCE_S)
    assert (answers.state, answers.silence) == (STATE, "")
    clock.pass_time(0.1)
    assert (answers.state, answers.silence) == (None, "timed out")
    answers.reported(STATE)
    clock.pass_time(10 * PATIENCE_S)
    assert (answers.state, answers.silence) == (STATE, ""), "nobody has asked since"


def test_a_long_round_before_the_first_missed_answer_does_not_count_as_silence() -> None:
    clock = ManualClock()
    answers = LastKnownState(clock.monotonic_s)
    answers.reported(STATE)
    clock.pass_time(2 * PATIENCE_S)
    answers.missed("connection refused")
    assert (answers.state, answers.silence) == (STATE, "")


def test_brokers_that_have_never_answered_are_silent_after_one_missed_answer() -> None:
    answers = LastKnownState(ManualClock().monotonic_s)
    assert (answers.state, answers.silence) == (None, "")
    answers.missed("connection refused")
    assert answers.silence == "connection refused"
