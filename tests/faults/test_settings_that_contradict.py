"""Contradicting settings of brokers and topics are refused when they are set, and ignored if they are stored."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from faulty_broker import FaultyBroker
from kafka.protocol.admin import IncrementalAlterConfigsRequest
from started_brokers import StartBroker

from harness.ask import ask
from harness.barnabas_server import page
from harness.deadline import wait_for

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Change = Resource.AlterableConfig
BROKER = 4
MAX_LAG = "log.cleaner.max.compaction.lag.ms"


def alter(broker: FaultyBroker, name: str, changes: Mapping[str, str | None]) -> str | None:
    """Set or delete settings of broker `name`, "" for all brokers; return the reason if it is refused."""
    configs = [
        Change(name=setting, value=value, config_operation=0 if value else 1) for setting, value in changes.items()
    ]
    resource = Resource(resource_type=BROKER, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = ask(broker.server.port, request, 1).responses
    return answer.error_message if answer.error_code else None


def store_config(path: Path, broker: str, configs: dict[str, str]) -> None:
    """Store a config as a broker of another version would have."""
    with closing(sqlite3.connect(path)) as database, database:
        (revision,) = database.execute("SELECT max(version) FROM documents").fetchone()
        value = json.dumps({"configs": configs}).encode()
        database.execute(
            "INSERT INTO documents (key, value, version) VALUES (?, ?, ?)",
            (f"broker-configs/{broker}", value, revision),
        )


@pytest.mark.parametrize("name", ["1", ""])
def test_a_broker_config_that_contradicts_a_topics_config_is_refused(start_broker: StartBroker, name: str) -> None:
    broker = start_broker()
    broker.client.create_topic("lagging", 1, {"min.compaction.lag.ms": "60000"})
    assert alter(broker, name, {MAX_LAG: "1000"}) == (
        "topic lagging: min.compaction.lag.ms=60000: must be at most max.compaction.lag.ms=1000"
    )
    broker.client.create_topic("flights")
    broker.client.write("flights", [b"one"])


@pytest.mark.parametrize("owner", [pytest.param("1", marks=pytest.mark.soak(only=True)), "default"])
def test_stored_contradicting_configs_are_logged_ignored_and_can_be_deleted(
    start_broker: StartBroker, owner: str
) -> None:
    broker = start_broker()
    broker.client.create_topic("lagging", 1, {"min.compaction.lag.ms": "60000"})
    assert broker.server.stop() == 0
    store_config(broker.folder / "metadata.sqlite", owner, {MAX_LAG: "1000"})
    broker.server.start()
    broker.client.write("lagging", [b"one"])
    assert len(broker.lines("topic lagging", "max.compaction.lag.ms=1000")) == 1
    metrics = page(broker.http_port, "/metrics")[1]
    assert 'barnabas_ignored_configs{resource="topic",name="lagging",setting="max.compaction.lag.ms"} 1' in metrics
    assert alter(broker, "" if owner == "default" else owner, {MAX_LAG: None}) is None
    wait_for(lambda: "barnabas_ignored_configs{" in page(broker.http_port, "/metrics")[1], lambda found: not found)
