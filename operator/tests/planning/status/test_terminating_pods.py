"""Deleted pods that still exist after their grace period."""

import pytest

from barnabas_operator.planning.status.cluster_events import TerminatingPod, is_away, terminating_pod, why_not_ended

BEFORE, AT, AFTER = "2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:01Z"
ENDING = TerminatingPod("main-broker-1", "node-2", AT)


def test_a_terminating_pod_is_overdue_after_its_grace_period() -> None:
    assert [ENDING.is_overdue(now) for now in (BEFORE, AT, AFTER)] == [False, False, True]
    assert not TerminatingPod("main-broker-1", "node-2", "").is_overdue(AFTER), "the pod was not deleted"


def test_a_terminating_pod_is_read_from_the_object_of_the_api_server() -> None:
    meta = {"name": "main-broker-1", "deletionTimestamp": AT}
    assert terminating_pod({"metadata": meta, "spec": {"nodeName": "node-2"}}) == ENDING
    assert terminating_pod({"metadata": {"name": "a"}, "spec": {}}) == TerminatingPod("a", "", "")


@pytest.mark.parametrize(("ready", "away"), [("True", False), ("False", True), ("Unknown", True)])
def test_a_node_counts_as_not_ready_unless_its_condition_ready_is_true(ready: str, away: bool) -> None:
    told = [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": ready}]
    assert is_away({"status": {"conditions": told}}) is away


def test_a_deleted_node_counts_as_not_ready() -> None:
    assert is_away(None)


def test_the_advice_about_an_overdue_pod_depends_on_its_node() -> None:
    assert why_not_ended([ENDING], {"node-2"}) == (
        f"main-broker-1 should have ended at {AT}, and its node node-2 is not ready, so Kubernetes waits for the node; "
        "if the node is gone for good, run: kubectl delete node node-2"
    )
    assert why_not_ended([ENDING], ()) == (
        f"main-broker-1 should have ended at {AT}, and its node node-2 is ready; check the kubelet of the node"
    )
    assert why_not_ended([], ()) == ""
