"""The chart is upgraded, uninstalled and installed again: brokers serve without interruption, and the new operator
applies what was declared meanwhile.
"""

import pytest

from e2e.pods.castle import Castle, topic_manifest
from e2e.pods.traffic import Traffic
from e2e.pods.under_traffic import STALL_SECONDS_MAX
from harness.deadline import PATIENCE_S, wait_for
from harness.soak import took
from harness.stock_client import StockClient

pytestmark = pytest.mark.soak(only=True)
TOPIC = "over-the-chart"


def test_brokers_serve_while_the_chart_is_upgraded_uninstalled_and_installed_again(castle: Castle) -> None:
    castle.create_topic(TOPIC, 3)
    before, started = castle.pods(), _starts(castle)
    with Traffic(castle.bootstrap, TOPIC, 3) as traffic:
        castle.release("upgrade", "logLevel=DEBUG")
        castle.await_ready()
        traffic.await_progress()
        castle.release("uninstall")
        try:
            wait_for(lambda: not _operators(castle))
            traffic.await_progress()
            castle.kubectl("apply", "-f-", stdin=topic_manifest(TOPIC, 5))
        finally:
            castle.release("install")
        castle.await_ready()
        client = StockClient(castle.bootstrap)
        wait_for(
            lambda: len(client.admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions),
            lambda count: count == 5,
            seconds_max=PATIENCE_S,
        )
        traffic.await_progress()
    took("the longest stall while the chart is reinstalled", traffic.longest_stall_s, STALL_SECONDS_MAX)
    assert traffic.problems == []
    assert castle.pods() == before
    assert _starts(castle) == started


def _operators(castle: Castle) -> list[str]:
    return castle.kubectl("get", "pods", "-l=app.kubernetes.io/name=barnabas-operator", "-o=name").split()


def _starts(castle: Castle) -> dict[str, int]:
    """Return the number of restarts of each broker in its pod."""
    return {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in castle.pod_items()
    }
