"""Outages of the API server, after which routes to pods may be outdated for a while."""

import pytest

from barnabas_operator.leader_election.api_outages import OUTAGE_S_MIN, ApiOutages
from barnabas_operator.planning.brokers.broker_steps import ROUTES_SETTLE_S
from harness.manual_clock import ManualClock


@pytest.mark.parametrize(("lasts_s", "is_outage"), [(OUTAGE_S_MIN - 0.1, False), (OUTAGE_S_MIN, True), (60.0, True)])
def test_routes_settle_some_time_after_the_api_server_is_back(lasts_s: float, is_outage: bool) -> None:
    clock = ManualClock()
    outages = ApiOutages(clock.monotonic_s)
    outages.failed()
    clock.pass_time(lasts_s / 2)
    outages.failed()
    clock.pass_time(lasts_s / 2)
    assert outages.have_settled, "nothing restarts anyway while the API server does not answer"
    outages.answered()
    assert outages.have_settled is not is_outage
    clock.pass_time(ROUTES_SETTLE_S)
    assert outages.have_settled


def test_an_answer_ends_an_outage() -> None:
    clock = ManualClock()
    outages = ApiOutages(clock.monotonic_s)
    for _ in range(3):
        outages.failed()
        clock.pass_time(OUTAGE_S_MIN / 2)
        outages.answered()
    assert outages.have_settled
