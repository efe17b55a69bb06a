"""The broker under test: ours, or Apache Kafka as the control; and reports about missing programs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from harness import apache_kafka
from harness.barnabas_server import prepare_barnabas
from harness.kafka_jars import JarsMissing
from harness.require import missing
from harness.server_process import ServerProcess

BrokerWith = Callable[[dict[str, str]], ServerProcess]

# These settings make tests quick; all others are the defaults of both brokers.
PROPERTIES = {
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "500",
    "log.cleaner.backoff.ms": "200",
}
# These are for topics with old timestamps, which a broker would delete after a week.
KEPT_FOR_EVER = {"retention.ms": "-1"}
EXIT_STATUS = {"barnabas": 0, "kafka": 143}


def prepare_server(peer: str, folder: Path, properties: dict[str, str], listeners: Sequence[str] = ()) -> ServerProcess:
    """Return the broker named by `--peer`, not running, which has these listeners beside its PLAINTEXT."""
    if peer == "barnabas":
        return prepare_barnabas(folder, properties, listeners=listeners)
    try:
        return apache_kafka.prepare(folder, "512M", properties, listeners)
    except JarsMissing as reason:
        missing(str(reason))
        raise


def check_end(peer: str, server: ServerProcess) -> None:
    """Stop the broker, and check that it ends in order without any internal failure."""
    assert server.stop() == EXIT_STATUS[peer], server.log_end()
    assert peer == "kafka" or "Traceback" not in server.log_text(), server.log_text()
