"""A group's offsets expire in a real broker after the shortest time that there is, and the exporter says when."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.barnabas_server import prepare_barnabas
from harness.deadline import wait_for
from harness.running_exporter import RunningExporter
from harness.server_process import ServerProcess
from harness.stock_client import StockClient

LEFT = "kafka_consumergroup_offsets_expire_seconds"
RETENTION_S = 60.0
SETTINGS = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    running = prepare_barnabas(tmp_path, SETTINGS)
    running.start()
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def exporter(server: ServerProcess, tmp_path: Path) -> Iterator[RunningExporter]:
    running = RunningExporter(server.bootstrap, tmp_path).start()
    try:
        yield running
    finally:
        running.process.close()


@pytest.mark.slow
@pytest.mark.soak(only=True)
def test_a_group_is_told_until_its_offsets_have_expired_with_less_and_less_time_left(
    server: ServerProcess, exporter: RunningExporter
) -> None:
    client = StockClient(server.bootstrap)
    client.create_topic("flights")
    client.write("flights", [b"one"])
    with closing(client.consumer("billing")) as consumer:
        consumer.subscribe(["flights"])
        wait_for(lambda: [each for each in consumer.consume(1, 0.1) if each.error() is None])
        consumer.commit(asynchronous=False)
        exporter.wait_for_value("kafka_consumergroup_members", 1, consumergroup="billing")
        assert exporter.value("kafka_offsets_retention_seconds") == RETENTION_S
        assert exporter.value(LEFT, consumergroup="billing") is None
    told = [RETENTION_S]

    def is_gone() -> bool:
        page = exporter.samples()
        left_s = [value for labels, value in page.get(LEFT, ()) if labels["consumergroup"] == "billing"]
        told.extend(left_s)
        return "kafka_brokers" in page and len(told) > 1 and not left_s

    wait_for(is_gone, seconds_max=4 * RETENTION_S, pause_s=0.5)
    assert told == sorted(told, reverse=True)
    assert told[-1] < RETENTION_S / 2
    assert exporter.values("kafka_consumergroup_lag", consumergroup="billing") == []
    assert exporter.value("kafka_consumergroup_members", consumergroup="billing") is None
