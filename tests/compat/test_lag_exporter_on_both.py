"""The lag exporter reads Barnabas and Apache Kafka alike: the values of its metrics are exact where they can be."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas_core.topic_partition import TopicPartition as Partition
from barnabas_kafka.asking import Asking, ConsumerGroupDescribeRequest
from barnabas_kafka.connection import connected_client
from barnabas_lag.kafka.groups import read_chosen
from barnabas_lag.kafka.offsets import OffsetsRetention
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.gather_report import gather_report
from barnabas_operator.kafka.group_admin import GroupAdmin
from barnabas_operator.planning.groups.reset_plan import Committed
from drivers.broker_under_test import KEPT_FOR_EVER, PROPERTIES, check_end, prepare_server
from harness.deadline import PATIENCE_S
from harness.running_exporter import RunningExporter
from harness.server_process import ServerProcess
from harness.stock_client import StockClient

pytestmark = pytest.mark.xdist_group("apache-kafka")
RECORDS = 10
STATE = "kafka_consumergroup_state"
OFFSETS_EXPIRE = "kafka_consumergroup_offsets_expire_seconds"
WRITTEN_S: dict[str, float] = {}
"""The time of the last record, by topic."""
names = (f"lag-{number}" for number in count())


@pytest.fixture(scope="module", params=["barnabas", pytest.param("kafka", marks=pytest.mark.soak(only=True))])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = prepare_server(request.param, tmp_path_factory.mktemp(request.param), PROPERTIES)
    server.start()
    try:
        yield server
        check_end(request.param, server)
    finally:
        server.close()


@pytest.fixture(scope="module")
def client(cluster: ServerProcess) -> StockClient:
    return StockClient(cluster.bootstrap)


@pytest.fixture(scope="module")
def exporter(cluster: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningExporter]:
    running = RunningExporter(cluster.bootstrap, tmp_path_factory.mktemp("exporter")).start()
    try:
        yield running
        assert running.process.stop() == 0, running.log()
        assert "Traceback" not in running.log(), running.log()
    finally:
        running.process.close()


@pytest.fixture
def topic(client: StockClient) -> str:
    """A topic of two partitions with ten records each, one per minute, the last of them now."""
    name, now_ms = next(names), int(time.time() * 1000)
    client.create_topic(name, 2, KEPT_FOR_EVER)
    producer = Producer({**client.settings, "acks": "all"})
    for number in range(RECORDS):
        for partition in (0, 1):
            written_ms = now_ms - (RECORDS - 1 - number) * 60_000
            producer.produce(name, b"%d" % number, partition=partition, timestamp=written_ms)
    assert producer.flush(PATIENCE_S) == 0
    WRITTEN_S[name] = now_ms / 1000
    return name


@contextmanager
def member(client: StockClient, group: str, topic: str, **settings: object) -> Iterator[Consumer]:
    """A consumer that has read the topic and committed."""
    consumer = client.consumer(group, **settings)
    consumer.subscribe([topic])
    try:
        read = 0
        deadline = time.monotonic() + PATIENCE_S
        while read < 2 * RECORDS:
            assert time.monotonic() < deadline, f"{read} records read"
            read += sum(each.error() is None for each in consumer.consume(100, 0.1))
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_partition_metrics_have_kafka_exporters_names(exporter: RunningExporter, topic: str) -> None:
    exporter.wait_for_value("kafka_topic_partition_current_offset", RECORDS, topic=topic, partition="1")
    assert exporter.value("kafka_brokers") == 1
    assert exporter.value("kafka_topic_partitions", topic=topic) == 2
    told = {
        name: exporter.value(name, topic=topic, partition="0")
        for name in exporter.samples()
        if name.startswith("kafka_topic_partition_")
    }
    assert told == {
        "kafka_topic_partition_current_offset": RECORDS,
        "kafka_topic_partition_oldest_offset": 0,
        "kafka_topic_partition_leader": 1,
        "kafka_topic_partition_leader_is_preferred": 1,
        "kafka_topic_partition_replicas": 1,
        "kafka_topic_partition_in_sync_replica": 1,
        "kafka_topic_partition_under_replicated_partition": 0,
    }


def test_a_group_that_has_read_everything_has_no_lag(
    exporter: RunningExporter, client: StockClient, topic: str
) -> None:
    with member(client, topic, topic):
        exporter.wait_for_value("kafka_consumergroup_lag_sum", 0, consumergroup=topic, topic=topic)
        assert exporter.value("kafka_consumergroup_members", consumergroup=topic) == 1
        assert exporter.values("kafka_consumergroup_current_offset", consumergroup=topic) == [RECORDS, RECORDS]
        assert exporter.value("kafka_consumergroup_current_offset_sum", consumergroup=topic) == 2 * RECORDS
        for name in ("lag", "lag_seconds", "retention_percent"):
            assert exporter.values(f"kafka_consumergroup_{name}", consumergroup=topic) == [0, 0]
        for name in ("lag_velocity", "time_to_catch_up_seconds"):
            assert exporter.value(f"kafka_consumergroup_{name}", consumergroup=topic) == 0
        assert exporter.value("kafka_consumergroup_status", consumergroup=topic) == 1
        assert exporter.value(OFFSETS_EXPIRE, consumergroup=topic) is None
        assert exporter.value("kafka_consumer_fetch_manager_records_lag_max", consumergroup=topic) == 0
        assert exporter.value("kafka_consumer_fetch_manager_records_lead_min", consumergroup=topic) == RECORDS


def test_a_group_without_members_keeps_its_lag_in_records_and_seconds(
    exporter: RunningExporter, client: StockClient, topic: str
) -> None:
    client.commit(topic, TopicPartition(topic, 0, 4), TopicPartition(topic, 1, RECORDS))
    exporter.wait_for_value("kafka_consumergroup_lag_sum", RECORDS - 4, consumergroup=topic)
    assert exporter.value("kafka_consumergroup_members", consumergroup=topic) == 0
    assert exporter.value("kafka_consumergroup_lag", consumergroup=topic, partition="0") == RECORDS - 4
    assert exporter.value("kafka_consumergroup_retention_percent", consumergroup=topic, partition="0") == 60
    assert exporter.value("kafka_consumergroup_lag_seconds", consumergroup=topic, partition="1") == 0
    late_s = exporter.value("kafka_consumergroup_lag_seconds", consumergroup=topic, partition="0")
    written_s = 60 * (RECORDS - 1 - 4)
    assert late_s is not None
    assert written_s * 0.9 < late_s < written_s * 1.1 + time.time() - WRITTEN_S[topic]


@pytest.fixture
def connected(cluster: ServerProcess) -> Iterator[Any]:
    connected = connected_client(cluster.bootstrap, PATIENCE_S, "operator")
    if not Asking(connected).supports(ConsumerGroupDescribeRequest, 0):
        pytest.skip("the broker has no groups of the consumer protocol")
    yield connected
    connected.close()


def test_a_group_of_the_consumer_protocol_has_lag_members_type_and_state(
    exporter: RunningExporter, connected: Any, client: StockClient, topic: str
) -> None:
    with member(client, topic, topic, group_protocol="consumer"):
        exporter.wait_for_value("kafka_consumergroup_lag_sum", 0, consumergroup=topic)
        exporter.wait_for_value(STATE, 1, consumergroup=topic, type="consumer", state="Stable")
        assert exporter.value("kafka_consumergroup_members", consumergroup=topic) == 1
        assert exporter.value("kafka_consumergroup_status", consumergroup=topic) == 1
    exporter.wait_for_value(STATE, 1, consumergroup=topic, type="consumer", state="Empty")
    assert exporter.value("kafka_consumergroup_members", consumergroup=topic) == 0


def test_each_partition_of_a_group_of_the_consumer_protocol_has_an_owner(
    cluster: ServerProcess, connected: Any, client: StockClient, topic: str
) -> None:
    both = {(topic, 0), (topic, 1)}
    with member(client, topic, topic, group_protocol="consumer", client_id="reader"):
        chosen = read_chosen(Asking(connected), [topic], {}, OffsetsRetention(time.monotonic))
        (consumer,) = chosen.consumers[topic]
        assert (consumer.client_id, set(consumer.partitions)) == ("reader", both)
        assert chosen.readings.groups[topic].topics == frozenset({topic})
        with ClusterAdmin(cluster.bootstrap, SystemClock()) as admin:
            (group,) = (each for each in gather_report(admin).groups if each.group_id == topic)
        assert (group.type, group.state, len(group.members or ())) == ("consumer", "Stable", 1)
        assert {(each.topic, each.partition, each.client_id) for each in group.lags} == {
            (*each, "reader") for each in both
        }


def test_offsets_of_a_group_of_the_consumer_protocol_are_reset_only_without_members(
    connected: Any, client: StockClient, topic: str
) -> None:
    admin, offsets = GroupAdmin(connected, nullcontext), {Partition(topic, 0): Committed(3)}
    with member(client, topic, topic, group_protocol="consumer"):
        described = admin.describe([topic]).groups[topic]
        assert (described.state, len(described.members), described.is_active) == ("Stable", 1, True)
        refused = admin.commit(topic, offsets)
        assert refused is not None
        assert refused.has_members
    described = admin.describe([topic]).groups[topic]
    assert (described.state, described.members, described.is_active) == ("Empty", (), False)
    assert admin.commit(topic, offsets) is None
    assert admin.describe([topic]).groups[topic].committed[Partition(topic, 0)].offset == 3
