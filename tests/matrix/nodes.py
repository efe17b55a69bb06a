"""The nodes under test, ours or Apache Kafka's: node 1 answers, and node 2 hangs.

Node 1 leads both internal topics, of one partition each, and the topic NEAR of two partitions. Node 2 leads the topic
HELD. It hangs once the topic exists, so a transaction with a partition of HELD stays in PREPARE for ever. The session
of node 2 does not end, because Apache Kafka completes transactions without the markers of partitions without a leader.

The transactional ids `OLD_IDS` have nearly used up the epochs of their producer ids. This takes 32,765 requests for
each id, so their records are written into the log of `__transaction_state` while node 1 is down.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from barnabas_broker.coordinators.transactions.decisions import Transaction, TransactionRecord
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from harness.apache_kafka import SINGLE_NODE, Node, format_log_dirs
from harness.barnabas_server import prepare_barnabas
from harness.codec_client import Connection
from harness.deadline import wait_for
from harness.server_process import ServerProcess, free_port

NEAR: Final = "near"
HELD: Final = "held"
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
TRANSACTION_VERSION: Final = "transaction.version"
OLD_IDS: Final = tuple(f"old-{number}" for number in range(600))
_OLD_EPOCH: Final = 32_765
_FIRST_OLD_PRODUCER_ID: Final = 7_000_000
_UNSAFE_DOWNGRADE: Final = 3
_UPGRADE: Final = 1
_KAFKA_PATIENCE_S: Final = 0.7
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "3600000",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "producer.id.expiration.check.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}


class Nodes:
    """Both nodes; requests go to node 1 over one connection."""

    def __init__(self, port: int, patience_s: float) -> None:
        self.port, self.patience_s = port, patience_s
        """The port of node 1, and the time after which one of its requests counts as waiting (`talk.py`)."""
        self._connection = Connection(port)
        self.one_in = 1
        """A run asks one cell in so many."""
        self._count = 0
        self._old_ids = iter(OLD_IDS)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """Return the response; nested structs are mappings. Raises ConnectionResetError if the node disconnects."""
        try:
            return self._connection.request(api, version, fields)
        except ConnectionResetError:
            self._connection.close()
            self._connection = Connection(self.port)
            raise

    def asks(self, cell: object) -> bool:
        """True if the cell is one of those that are asked, which are always the same."""
        return crc32(str(cell).encode()) % self.one_in == 0

    def old(self) -> str:
        """Return one of the OLD_IDS that no cell has had."""
        return next(self._old_ids)

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

    def coordinator_epoch(self) -> int:
        """Return the leader epoch of the only partition of the transaction coordinator, which its markers have."""
        (topic,) = self.ask("Metadata", 12, topics=[{"name": TRANSACTION_TOPIC}]).topics
        return int(topic.partitions[0].leader_epoch)

    def coordinates(self) -> bool:
        """True if node 1 coordinates, and allocates producer ids; the first call makes the internal topics."""
        found = [self.ask("FindCoordinator", 4, key_type=kind, coordinator_keys=["first"]) for kind in (0, 1)]
        if any(each.coordinators[0].error_code for each in found):
            return False
        (group,) = self.ask("DescribeGroups", 5, groups=["first"]).groups
        codes = [group.error_code]
        for transactional_id in ("first", None):
            fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
            codes.append(self.ask("InitProducerId", 4, producer_id=-1, producer_epoch=-1, **fields).error_code)
        return not any(codes)

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

    with _running(folder, process(1), process(2), patience_s=0) as nodes:
        yield nodes


@contextmanager
def kafka(folder: Path) -> Iterator[Nodes]:
    """Run Apache Kafka: node 1 is the controller, too."""
    first, second = (Node(folder / str(number), number, free_port(), free_port()) for number in (1, 2))
    first.write_config([first.voter], {**SINGLE_NODE, **_SETTINGS})
    alone = {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{second.port}"}
    second.write_config([first.voter], {**SINGLE_NODE, **_SETTINGS, **alone})
    format_log_dirs(first, second)
    with _running(folder, first.process("512M"), second.process("256M"), _KAFKA_PATIENCE_S) as nodes:
        yield nodes


SERVERS: Final[Mapping[str, Callable[[Path], Any]]] = {"barnabas": barnabas, "kafka": kafka}


@contextmanager
def _running(folder: Path, first: ServerProcess, second: ServerProcess, patience_s: float) -> Iterator[Nodes]:
    """Run both processes, and kill them at the end: they would wait for each other."""
    with closing(first), closing(second):
        first.start()
        with closing(Nodes(first.port, patience_s)) as nodes:
            wait_for(nodes.coordinates)
        first.stop()
        _write_old_ids(folder / "1" / "logs" / "__transaction_state-0" / f"{0:020}.log")
        first.start()
        with closing(Nodes(first.port, patience_s)) as nodes:
            wait_for(nodes.coordinates)
            second.start()
            wait_for(lambda: nodes.knows(2))
            nodes.create_topic(NEAR, 2)
            nodes.create_topic(HELD, 1, leader=2)
            second.pause()
            yield nodes


def _write_old_ids(log: Path) -> None:
    last = None
    stored = memoryview(log.read_bytes())
    while len(stored):
        last = parse_header(stored, 0)
        stored = stored[last.size_bytes :]
    assert last is not None, f"{log} is empty"
    now_ms = int(time.time() * 1000)
    records = []
    for number, name in enumerate(OLD_IDS):
        producer_id = _FIRST_OLD_PRODUCER_ID + number
        transaction = Transaction(producer_id, _OLD_EPOCH, 60_000, updated_ms=now_ms)
        records.append(Record(number, now_ms, *TransactionRecord(name, transaction).encode()))
    batch = encode_batch(records, base_offset=last.last_offset + 1, leader_epoch=last.leader_epoch)
    with log.open("ab") as file:
        file.write(batch)
