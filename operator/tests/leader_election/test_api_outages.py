"""Outages of the API server, after which routes to pods may be outdated for a while."""

from math import inf

import pytest

from barnabas_operator.leader_election import OUTAGE_S_MIN, ApiOutages
from harness.manual_clock import ManualClock


@pytest.mark.parametrize(("lasts_s", "is_outage"), [(OUTAGE_S_MIN - 0.1, False), (OUTAGE_S_MIN, True), (60.0, True)])
def test_time_counts_from_the_end_of_an_outage(lasts_s: float, is_outage: bool) -> None:
    clock = ManualClock()
    outages = ApiOutages(clock.monotonic_s)
    outages.failed()
    clock.pass_time(lasts_s / 2)
    outages.failed()
    clock.pass_time(lasts_s / 2)
    assert outages.since_last_s == inf, "nothing restarts anyway while the API server does not answer"
    outages.answered()
    clock.pass_time(5)
    assert outages.since_last_s == (5 if is_outage else inf)


def test_failures_between_answers_are_no_outage() -> None:
    clock = ManualClock()
    outages = ApiOutages(clock.monotonic_s)
    for _ in range(3):
        outages.failed()
        clock.pass_time(OUTAGE_S_MIN / 2)
        outages.answered()
    assert outages.since_last_s == inf
