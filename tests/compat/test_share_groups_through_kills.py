"""Share groups of Java's client, librdkafka and franz-go acknowledge records on brokers that are killed and rolled.

`--peer kafka` does the same to Apache Kafka. `make proof-shares` does it 50 times to both. The decision page about
share delivery tells why the Java worker sometimes waits for ever, so that its records become dead letters.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from drivers.builds import go_driver, java_driver
from drivers.remote import RemoteClient
from drivers.share_workers import (
    ACCEPT,
    EXPLICIT,
    IMPLICIT,
    REJECT,
    RELEASE,
    RENEW,
    LibrdkafkaWorker,
    Note,
    RemoteWorker,
    Worker,
    problems,
)
from harness.cluster import RunningCluster, prepare_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.kafka_cluster import prepare_kafka_cluster
from harness.soak import seed
from harness.stock_client import StockClient

TOPIC, LETTERS, PARTITIONS = "jobs", "dlq.jobs", 4
ROUNDS = 50
RECORDS = 200
"""The records of each round."""
PROPERTIES = {
    "group.share.record.lock.duration.ms": "5000",
    "group.share.min.record.lock.duration.ms": "1000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}
CONFIGS = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": LETTERS}


@pytest.fixture
def cluster(peer: str, tmp_path: Path) -> Iterator[RunningCluster]:
    prepare = prepare_cluster if peer == "barnabas" else prepare_kafka_cluster
    with closing(prepare(tmp_path, 3, PROPERTIES)) as running:
        running.start()
        running.create_topic(TOPIC, PARTITIONS, 3)
        running.create_topic(LETTERS, PARTITIONS, 3, config={"errors.deadletterqueue.group.enable": "true"})
        entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in CONFIGS.items()]
        resource = ConfigResource(ResourceType.GROUP, TOPIC, incremental_configs=entries)
        client = running.client()
        client.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        yield running


class Letters:
    """The reader of dead letters."""

    def __init__(self, client: StockClient) -> None:
        self._consumer = client.consumer()
        self._consumer.assign([TopicPartition(LETTERS, number, 0) for number in range(PARTITIONS)])
        self.found: Counter[tuple[int, int]] = Counter()
        """How many dead letters each record has, by partition and offset."""

    def read(self) -> Counter[tuple[int, int]]:
        """Read what has come."""
        for message in self._consumer.consume(1000, 0.2):
            if message.error() is None:
                headers = dict(message.headers() or ())
                named = (int(headers[f"__dlq.errors.{name}"] or b"-1") for name in ("partition", "offset"))
                self.found[next(named), next(named)] += 1
        return self.found


@pytest.mark.soak(only=True)
def test_every_record_is_accepted_once_or_becomes_a_dead_letter_while_brokers_are_killed(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    client, random = cluster.client(), Random(seed())
    with (
        closing(RemoteClient("java", java_driver(cluster.bootstrap), tmp_path / "java.log")) as java,
        closing(RemoteClient("franz-go", go_driver(cluster.bootstrap), tmp_path / "go.log")) as go,
    ):
        workers: list[Worker] = [RemoteWorker(java, "explicit", TOPIC, EXPLICIT)]
        letters = Letters(client)
        write(client, range(RECORDS))
        wait_for(letters.read)
        workers.append(LibrdkafkaWorker(client.settings, TOPIC, EXPLICIT))
        workers.append(RemoteWorker(java, "implicit", TOPIC, IMPLICIT))
        workers.append(RemoteWorker(go, "franz-go", TOPIC, EXPLICIT))
        for number in range(1, ROUNDS + 1):
            write(client, range(number * RECORDS, (number + 1) * RECORDS))
            down = random.randrange(3)
            random.choice([cluster.kill, cluster.stop])(down)
            cluster.start(down)
            cluster.wait_until_full()
        count, places = (ROUNDS + 1) * RECORDS, numbers_of(client)

        def finished() -> int:
            accepted = {each.number for worker in workers for each in worker.worked() if each.kind == ACCEPT}
            return len(accepted | {places[each] for each in letters.read()})

        wait_for(finished, lambda done: done == count)
        notes = [note for worker in workers for note in worker.rest()]
    found = Counter({places[place]: times for place, times in letters.read().items()})
    tell(notes, found)
    assert not problems(notes, found, count)
    assert {each.kind for each in notes if each.is_stored} == {ACCEPT, RELEASE, REJECT, RENEW}


def write(client: StockClient, numbers: range) -> None:
    for partition in range(PARTITIONS):
        client.write(TOPIC, [b"%d" % each for each in numbers if each % PARTITIONS == partition], partition)


def numbers_of(client: StockClient) -> dict[tuple[int, int], int]:
    """Return the numbers of all records by partition and offset."""
    found = {}
    for partition in range(PARTITIONS):
        for offset, value in enumerate(client.read(TOPIC, partition)):
            found[partition, offset] = int(value)
    return found


def tell(notes: list[Note], letters: Counter[int]) -> None:
    kinds = Counter((each.kind, each.is_stored) for each in notes)
    deliveries = Counter(each.number for each in notes if each.kind == ACCEPT)
    again = sum(times - 1 for times in deliveries.values())
    print(f"type and is_stored: {dict(kinds)}; accepted again: {again}; dead letters: {len(letters)}")
    unwanted = sorted(each for each in letters if each % 10 != 3 and each % 25 != 9)
    print(f"dead letters of records that no member rejects or always releases: {unwanted}")
