"""F23: SIGTERM while clients write, and while logs are loaded, leads to an orderly shutdown."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from faulty_broker import FaultyBroker
from started_brokers import StartBroker

from barnabas.__main__ import EXIT_TERMINATED
from harness.deadline import PATIENCE_S, wait_for


def test_sigterm_under_load_is_a_clean_shutdown(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.client.create_topic("flights", 6)
    acknowledged: list[tuple[int, int, bytes]] = []
    producer = Producer({**broker.client.settings, "acks": "all", "linger.ms": 1, "message.timeout.ms": 600_000})

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None
        acknowledged.append((message.partition(), message.offset(), message.value()))

    for number in range(20_000):
        producer.produce("flights", b"%d" % number, partition=number % 6, on_delivery=delivered)
    wait_for(lambda: producer.poll(0.001) or acknowledged)
    assert broker.server.stop() == 0
    assert (broker.log_dirs[0] / ".kafka_cleanshutdown").exists()
    broker.server.start()
    assert len(broker.lines("after a clean shutdown; 0 bytes were checked")) == 1
    assert producer.flush(PATIENCE_S) == 0
    values = {partition: broker.client.read("flights", partition) for partition in range(6)}
    assert len(acknowledged) == 20_000
    assert all(values[partition][offset] == value for partition, offset, value in acknowledged)


@pytest.mark.parametrize("bytes_written", [pytest.param(0, marks=pytest.mark.soak(only=True)), 30_000_000])
def test_sigterm_during_startup_stops_the_broker_at_once_and_loses_no_records(
    start_broker: StartBroker, bytes_written: int
) -> None:
    """SIGTERM comes at several moments of a start after a crash, with logs to recover."""
    broker = start_broker()
    broker.client.create_topic("flights", 50)
    values = [b"x" * 10_000] * (bytes_written // 10_000)
    broker.client.write("flights", values)
    broker.server.kill()
    for delay in range(8):
        status = terminated_after(broker, broker.folder / "early.log", delay * 0.1)
        assert status in (0, -signal.SIGTERM, EXIT_TERMINATED), (broker.folder / "early.log").read_text(
            encoding="utf-8"
        )
    assert "Traceback" not in (broker.folder / "early.log").read_text(encoding="utf-8")
    broker.server.start()
    assert broker.client.read("flights") == values


def terminated_after(broker: FaultyBroker, log_path: Path, seconds: float) -> int:
    """Send SIGTERM this long after the start, unless the process ended before; return its exit status."""
    with log_path.open("ab") as log:
        process = subprocess.Popen(broker.server.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait(PATIENCE_S)
    finally:
        process.kill()
