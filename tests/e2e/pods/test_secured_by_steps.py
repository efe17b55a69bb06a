"""An open Cluster is secured and opened again under traffic, while its operator is killed at each stage."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from e2e.pods.administrator import administrator
from e2e.pods.castle import NAME, POLL_S, Castle
from e2e.pods.figures import Figures
from e2e.pods.under_traffic import under_traffic
from harness.deadline import PATIENCE_S, wait_for
from harness.stock_client import StockClient

SAFE = {"name": "safe", "port": 9097, "type": "nodeport", "tls": True, "authentication": {"type": "scram-sha-512"}}
STEP_SECONDS_MAX = 600.0
STALL_SECONDS_MAX = 1.0


def stage(castle: Castle) -> str | None:
    found: str | None = castle.read("cluster", NAME)["status"].get("securityStage")
    return found


def stages_until(castle: Castle, last: str | None, listeners: list[object]) -> list[str | None]:
    """Declare these listeners, delete the operator's pod at each stage, and return the stages up to the last."""
    seen = [stage(castle)]
    castle.patch({"listeners": listeners})
    while seen[-1] != last:
        seen.append(wait_for(lambda: stage(castle), lambda now: now != seen[-1], STEP_SECONDS_MAX, POLL_S))
        castle.kubectl("delete", "pod", "-lapp.kubernetes.io/name=barnabas-operator", "--wait=false")
    castle.await_ready()
    return seen


@pytest.mark.soak(only=True)
def test_a_cluster_is_secured_and_opened_again_under_traffic(castle: Castle, figures: Figures, tmp_path: Path) -> None:
    listeners = castle.read("cluster", NAME)["spec"]["listeners"]
    with under_traffic(castle, figures, "a Cluster is secured", "secured-by-steps", STALL_SECONDS_MAX):
        stages = stages_until(castle, "Secured", [*listeners, SAFE])
    assert stages == [None, "Offered", "Used", "Secured"]
    client = AdminClient(administrator(castle, NAME, "safe", tmp_path))
    assert "secured-by-steps" in client.list_topics(timeout=PATIENCE_S).topics
    with under_traffic(castle, figures, "a secured Cluster is opened", "opened-by-steps", STALL_SECONDS_MAX):
        assert stages_until(castle, None, listeners) == ["Secured", "Used", "Offered", None]
    assert "opened-by-steps" in StockClient(castle.bootstrap).admin.list_topics(timeout=PATIENCE_S).topics
