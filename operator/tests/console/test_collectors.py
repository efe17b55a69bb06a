"""Collectors and sessions: their bounds, their end, and what happens when brokers refuse, fail or hang."""

from datetime import UTC, datetime
from typing import Any

import pytest

from barnabas_console.app.collectors import COLLECTORS_MAX, Collectors, CollectorSettings, TooManyPrincipals, pause_s
from barnabas_console.app.sessions import SESSION_S, SESSIONS_MAX, Principal, Sessions
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import IN_CLEAR, Credentials
from harness.deadline import wait_for


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def now() -> datetime:
    return datetime.now(UTC)


def principal(number: int) -> Principal:
    return Principal(f"user-{number}", str(number), IN_CLEAR)


def unreachable(_credentials: Credentials) -> Any:
    raise ClusterUnreachable("no broker answers")


def test_a_collector_whose_first_connection_fails_ends_and_says_why() -> None:
    collectors = Collectors(CollectorSettings(unreachable, Clock(), 1.0, now))
    collector = collectors.of(principal(1))
    wait_for(lambda: collector.is_over)
    assert (collector.is_accepted, collector.sight.failure) == (False, "no broker answers")
    assert len(collectors) == 0


def test_no_more_principals_are_looked_for_than_allowed() -> None:
    class Hanging:
        """A connection that never answers."""

        def __init__(self) -> None:
            self.ended = False

        def __call__(self, _credentials: Credentials) -> Any:
            wait_for(lambda: self.ended)
            raise ClusterUnreachable("it hung")

    hanging = Hanging()
    collectors = Collectors(CollectorSettings(hanging, Clock(), 1.0, now))
    for number in range(COLLECTORS_MAX):
        collectors.of(principal(number))
    with pytest.raises(TooManyPrincipals):
        collectors.of(principal(COLLECTORS_MAX))
    assert collectors.of(principal(0)).principal == principal(0)
    hanging.ended = True
    wait_for(lambda: len(collectors) == 0)


def test_a_session_ends_after_its_time() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    cookie = sessions.cookie_of(sessions.open(principal(1)))
    assert sessions.of_cookie(cookie) is not None
    clock.now_s = SESSION_S
    assert sessions.of_cookie(cookie) is None


def test_the_oldest_session_ends_if_there_are_too_many() -> None:
    sessions = Sessions(Clock())
    first, *others = [sessions.open(principal(number)) for number in range(SESSIONS_MAX + 1)]
    assert sessions.find(first.session_id) is None
    assert sessions.find(others[-1].session_id) is others[-1]


def test_all_sessions_of_a_refused_password_end() -> None:
    sessions = Sessions(Clock())
    mine, other = sessions.open(principal(1)), sessions.open(principal(2))
    sessions.close_all_of(principal(1))
    assert sessions.find(mine.session_id) is None
    assert sessions.find(other.session_id) is other


def test_a_long_round_is_followed_by_a_pause_that_is_longer_but_at_most_half_a_minute() -> None:
    assert [pause_s(5.0, round_s) for round_s in (0.1, 2.0, 20.0)] == [5.0, 8.0, 30.0]
    assert pause_s(60.0, 20.0) == 60.0
