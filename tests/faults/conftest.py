"""Brokers for tests that break parts of their machine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faulty_broker import FaultyBroker
from started_brokers import StartBroker


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """A function that starts a broker with more settings (`log_dirs="a,b"` under the test's folder).

    Its first argument is called with the broker before the start.
    """
    brokers: list[FaultyBroker] = []

    def start(change: Callable[[FaultyBroker], None] = lambda _: None, **settings: str) -> FaultyBroker:
        folder = tmp_path / f"broker-{len(brokers)}"
        folder.mkdir(exist_ok=True)
        brokers.append(FaultyBroker(folder, settings))
        change(brokers[-1])
        brokers[-1].server.start()
        return brokers[-1]

    try:
        yield start
        for broker in brokers:
            if broker.server.running:
                assert broker.server.stop() == 0, broker.server.log_end()
            assert broker.is_made_to_fail or "Traceback" not in broker.server.log_text(), broker.server.log_text()
    finally:
        for broker in brokers:
            broker.server.close()
