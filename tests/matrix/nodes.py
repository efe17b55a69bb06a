"""The nodes under test, ours or Apache Kafka's: node 1 answers, and node 2 hangs.

Node 1 leads both internal topics, of one partition each, and the topic NEAR of two partitions. Node 2 leads the topic
HELD. It hangs once the topic exists, so a transaction with a partition of HELD stays in PREPARE for ever. The session
of node 2 does not end, because Apache Kafka completes transactions without the markers of partitions without a leader.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas_core.errors import ErrorCode
from harness.apache_kafka import SINGLE_NODE, Node, format_log_dirs
from harness.barnabas_server import prepare_barnabas
from harness.codec_client import Connection
from harness.deadline import wait_for
from harness.server_process import ServerProcess, free_port

NEAR: Final = "near"
HELD: Final = "held"
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_VERSION: Final = "transaction.version"
_UNSAFE_DOWNGRADE: Final = 3
_UPGRADE: Final = 1
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "3600000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}


class Nodes:
    """Both nodes; requests go to node 1 over one connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = Connection(port)
        self._count = 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """Return the response; nested structs are mappings. Raises ConnectionResetError if the node disconnects."""
        try:
            return self._connection.request(api, version, fields)
        except ConnectionResetError:
            self._connection.close()
            self._connection = Connection(self._port)
            raise

    def fresh(self, kind: str) -> str:
        """Return a name that no cell has had."""
        self._count += 1
        return f"{kind}-{self._count}"

    def create_topic(self, name: str, partitions: int, leader: int = 1) -> None:
        """Create a topic whose partitions have one replica."""
        assignments = [{"partition_index": number, "broker_ids": [leader]} for number in range(partitions)]
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
        made = self.ask("CreateTopics", 7, topics=[topic], timeout_ms=30_000).topics[0]
        assert made.error_code == 0, made
        wait_for(lambda: self._leads(name, partitions, leader))

    def _leads(self, name: str, partitions: int, leader: int) -> bool:
        (topic,) = self.ask("Metadata", 12, topics=[{"name": name}]).topics
        leaders = [each.leader_id for each in topic.partitions if each.error_code == 0]
        return topic.error_code == 0 and leaders == [leader] * partitions

    def set_transaction_version(self, version: int) -> None:
        """Finalize a transaction.version, and return when node 1 uses it."""
        if self._transaction_version() == version:
            return
        change = _UPGRADE if version > self._transaction_version() else _UNSAFE_DOWNGRADE
        update = {"feature": TRANSACTION_VERSION, "max_version_level": version, "upgrade_type": change}
        answer = self.ask("UpdateFeatures", 1, feature_updates=[update], timeout_ms=30_000)
        assert answer.error_code == 0, answer
        wait_for(lambda: self._transaction_version() == version)

    def _transaction_version(self) -> int:
        features = self.ask("ApiVersions", 4, client_software_name="matrix", client_software_version="1")
        return next(
            (each.max_version_level for each in features.finalized_features if each.name == TRANSACTION_VERSION), 0
        )

    def coordinates(self) -> bool:
        """True if node 1 coordinates groups and transactional ids; the first call makes the internal topics."""
        found = [self.ask("FindCoordinator", 4, key_type=kind, coordinator_keys=["first"]) for kind in (0, 1)]
        if any(each.coordinators[0].error_code for each in found):
            return False
        (group,) = self.ask("DescribeGroups", 5, groups=["first"]).groups
        (transaction,) = self.ask("DescribeTransactions", 0, transactional_ids=["first"]).transaction_states
        producer = self.ask("InitProducerId", 4, transactional_id=None, producer_id=-1, producer_epoch=-1)
        codes = group.error_code, transaction.error_code, producer.error_code
        return codes == (0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, 0)

    def knows(self, node: int) -> bool:
        """True if node 1 counts this node as alive."""
        return node in {each.node_id for each in self.ask("Metadata", 12, topics=[]).brokers}


@contextmanager
def barnabas(folder: Path) -> Iterator[Nodes]:
    """Run our brokers."""
    store = {"metadata.store": f"sqlite:///{folder / 'metadata.sqlite'}"}

    def process(number: int) -> ServerProcess:
        place = folder / str(number)
        place.mkdir(parents=True)
        return prepare_barnabas(place, {**_SETTINGS, **store, "broker.id": str(number)})

    with _running(process(1), process(2)) as nodes:
        yield nodes


@contextmanager
def kafka(folder: Path) -> Iterator[Nodes]:
    """Run Apache Kafka: node 1 is the controller, too."""
    first, second = (Node(folder / str(number), number, free_port(), free_port()) for number in (1, 2))
    first.write_config([first.voter], {**SINGLE_NODE, **_SETTINGS})
    alone = {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{second.port}"}
    second.write_config([first.voter], {**SINGLE_NODE, **_SETTINGS, **alone})
    format_log_dirs(first, second)
    with _running(first.process("512M"), second.process("256M")) as nodes:
        yield nodes


SERVERS: Final[Mapping[str, Callable[[Path], Any]]] = {"barnabas": barnabas, "kafka": kafka}


@contextmanager
def _running(first: ServerProcess, second: ServerProcess) -> Iterator[Nodes]:
    """Run both processes, and kill them at the end: they would wait for each other."""
    with closing(first), closing(second):
        first.start()
        with closing(Nodes(first.port)) as nodes:
            wait_for(nodes.coordinates)
            second.start()
            wait_for(lambda: nodes.knows(2))
            nodes.create_topic(NEAR, 2)
            nodes.create_topic(HELD, 1, leader=2)
            second.pause()
            yield nodes
