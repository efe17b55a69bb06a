"""A round that fails or hangs stops the process with the reason."""

from threading import Event

import pytest

from barnabas_lag.app.main import EXIT_FAILED, Clocks, Rounds, Supervised, hang_s, serve
from barnabas_lag.app.options import parse
from harness.deadline import PATIENCE_S

POLL_S = 0.01


def test_a_round_that_hangs_is_reported() -> None:
    let_go = Event()
    supervised = Supervised(lambda _: bool(let_go.wait(PATIENCE_S)), lambda: "the same")
    supervised.watch(0.05, POLL_S)
    assert supervised.failure == "a round of requests to the brokers hangs: it has not ended within 0.05 s"
    let_go.set()
    supervised.join(PATIENCE_S)


def test_a_round_that_raises_is_reported() -> None:
    def raises(_: Event) -> None:
        raise ValueError("a bug")

    supervised = Supervised(raises, lambda: "the same")
    supervised.watch(30, POLL_S)
    assert supervised.failure == "a round of requests to the brokers failed: ValueError: a bug"


def test_rounds_that_make_progress_do_not_count_as_hanging() -> None:
    rounds = 0

    def one_round_more() -> int:
        nonlocal rounds
        rounds += 1
        if rounds == 10:
            supervised.stop.set()
        return rounds

    supervised = Supervised(lambda stop: bool(stop.wait(PATIENCE_S)), one_round_more)
    supervised.watch(0.0, POLL_S)
    supervised.join(PATIENCE_S)
    assert (supervised.failure, rounds) == (None, 10)


def test_the_hang_timeout_is_four_intervals_and_at_least_two_minutes() -> None:
    assert hang_s(1) == 120
    assert hang_s(600) == 2_400


def test_a_bug_in_a_round_stops_the_process_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    def connect() -> object:
        raise ZeroDivisionError("a bug")

    options = parse(["--bootstrap", "127.0.0.1:1", "--listen-address", "127.0.0.1:0"])
    assert serve(options, Rounds(options, connect, Clocks(lambda: 0.0, lambda: 0.0))) == EXIT_FAILED
    assert "ends: a round of requests to the brokers failed: ZeroDivisionError: a bug" in caplog.text
