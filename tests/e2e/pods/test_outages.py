"""Outages of brokers, operator or API server under a producer with acks=all and a group from outside the cluster:
no acknowledged record is lost, no client gets an error, no partition has fewer in-sync replicas than
min.insync.replicas, and the cluster recovers.
"""

import re
import time
from collections.abc import Callable
from functools import partial

import pytest

from e2e.pods.castle import BROKERS, NAME, POLL_S, Castle
from e2e.pods.figures import Figures
from e2e.pods.traffic import Traffic
from e2e.pods.under_traffic import KILL_SECONDS_MAX, STALL_SECONDS_MAX, under_traffic
from harness.deadline import wait_for

ROLL_SECONDS_MAX = 300.0
API_OUTAGE_S = 120.0
EVICT_S = 1.0  # Each try starts kubectl.


def _roll_while_the_operator_restarts(castle: Castle, traffic: Traffic) -> None:
    before = castle.pods()
    castle.kubectl("rollout", "restart", f"statefulset/{NAME}-broker")
    wait_for(lambda: castle.pods() != before, seconds_max=ROLL_SECONDS_MAX, pause_s=POLL_S)
    castle.kubectl("rollout", "restart", "deployment/barnabas-operator")
    castle.await_new_pods(before)


def _kill(castle: Castle, traffic: Traffic) -> None:
    castle.crash(f"{NAME}-broker-1")


def _delete_one_and_evict_all(castle: Castle, traffic: Traffic) -> None:
    """Evict as `kubectl drain` does: retry until the disruption budget allows it."""
    castle.kubectl("delete", "pod", f"{NAME}-broker-2", "--wait=true")
    before = wait_for(castle.pods, lambda pods: len(pods) == BROKERS, ROLL_SECONDS_MAX, POLL_S)
    for pod in sorted(before):
        wait_for(partial(castle.evict, pod), seconds_max=ROLL_SECONDS_MAX, pause_s=EVICT_S)
    castle.await_new_pods(before)


def _lose_the_api_server(castle: Castle, traffic: Traffic) -> None:
    if castle.plane is None:
        pytest.skip("the provider cannot stop the API server")
    before = castle.operator_starts()
    castle.plane.stop_api_server()
    try:
        ends_s = time.monotonic() + API_OUTAGE_S
        while time.monotonic() < ends_s:
            traffic.await_progress()
    finally:
        castle.plane.end_outage()
    castle.create_topic("after-the-outage", 1)
    assert castle.operator_starts() == before, "the operator must not restart"


EVENTS: dict[str, Callable[[Castle, Traffic], None]] = {
    "the operator restarts in the middle of kubectl rollout restart": _roll_while_the_operator_restarts,
    "a broker is killed": _kill,
    "a pod is deleted, then all are evicted": _delete_one_and_evict_all,
    "the API server is away": _lose_the_api_server,
}
LONG = pytest.mark.soak(only=True)


@pytest.mark.soak
@pytest.mark.parametrize(
    "event", [each if EVENTS[each] is _kill else pytest.param(each, marks=LONG) for each in EVENTS]
)
def test_no_acknowledged_record_is_lost_and_no_client_fails_during_an_outage(
    castle: Castle, figures: Figures, event: str
) -> None:
    allowed_s = KILL_SECONDS_MAX if EVENTS[event] is _kill else STALL_SECONDS_MAX
    with under_traffic(castle, figures, event, re.sub(r"[^a-z]+", "-", event), allowed_s) as traffic:
        EVENTS[event](castle, traffic)
