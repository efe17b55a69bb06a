"""Pods that were deleted and are still there when their time is over."""

import pytest

from barnabas_operator.planning.status.terminating_pods import TerminatingPod, is_away, terminating_pod, why_not_ended

BEFORE, AT, AFTER = "2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:01Z"
ENDING = TerminatingPod("main-broker-1", "node-2", AT)


def test_a_pod_has_until_the_end_of_its_grace_period() -> None:
    assert [ENDING.is_overdue(now) for now in (BEFORE, AT, AFTER)] == [False, False, True]
    assert not TerminatingPod("main-broker-1", "node-2", "").is_overdue(AFTER), "nobody has deleted it"


def test_it_is_read_as_the_api_server_has_it() -> None:
    meta = {"name": "main-broker-1", "deletionTimestamp": AT}
    assert terminating_pod({"metadata": meta, "spec": {"nodeName": "node-2"}}) == ENDING
    assert terminating_pod({"metadata": {"name": "a"}, "spec": {}}) == TerminatingPod("a", "", "")


@pytest.mark.parametrize(("ready", "away"), [("True", False), ("False", True), ("Unknown", True)])
def test_a_node_is_away_when_its_kubelet_tells_nothing(ready: str, away: bool) -> None:
    told = [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": ready}]
    assert is_away({"status": {"conditions": told}}) is away


def test_a_node_that_is_no_more_is_away() -> None:
    assert is_away(None)


def test_what_can_be_done_depends_on_the_node() -> None:
    assert why_not_ended([ENDING], {"node-2"}) == (
        f"main-broker-1 should have ended at {AT}, and its node node-2 is not ready, so Kubernetes waits for the node; "
        "if the node is gone for good, run: kubectl delete node node-2"
    )
    assert why_not_ended([ENDING], ()) == (
        f"main-broker-1 should have ended at {AT}, and its node node-2 is ready; check the kubelet of the node"
    )
    assert why_not_ended([], ()) == ""
