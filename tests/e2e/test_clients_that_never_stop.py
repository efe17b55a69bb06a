"""The condition under which the clients of the traffic count as making progress."""

from pathlib import Path

import pytest

from e2e.pods.traffic import Traffic
from harness.barnabas_server import prepare_barnabas
from harness.stock_client import StockClient


@pytest.mark.slow
def test_traffic_with_a_group_member_that_gets_nothing_makes_no_progress(tmp_path: Path) -> None:
    broker = prepare_barnabas(tmp_path, {"offsets.topic.replication.factor": "1"})
    broker.start()
    try:
        StockClient(broker.bootstrap).create_topic("busy", 2)
        with Traffic(broker.bootstrap, "busy", 2) as traffic:
            traffic.await_progress()
            traffic.members[1].finish()
            with pytest.raises(AssertionError, match="after 4 s still"):
                traffic.await_progress(seconds_max=4)
        assert not traffic.problems
    finally:
        broker.stop()
