"""What admin clients are told of the controller, of idempotent producers and of features."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.protocol.admin import DescribeProducersRequest, DescribeQuorumRequest, UpdateFeaturesRequest
from kafka.protocol.metadata import ApiVersionsRequest

from harness.cluster import BarnabasCluster, barnabas_cluster

NOT_LEADER_OR_FOLLOWER = 6
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_UPDATE_VERSION = 95
QuorumTopic = DescribeQuorumRequest.TopicData
ProducersTopic = DescribeProducersRequest.TopicRequest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path_factory.mktemp("quorum"), brokers=2) as cluster:
        yield cluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_holder_of_the_controllers_lease_is_the_one_voter(cluster: BarnabasCluster, version: int) -> None:
    topics = [
        QuorumTopic(topic_name=name, partitions=[QuorumTopic.PartitionData(partition_index=0)])
        for name in ("__cluster_metadata", "flights")
    ]
    answer = cluster.ask(0, DescribeQuorumRequest(topics=topics), version)
    metadata, flights = (topic.partitions[0] for topic in answer.topics)
    assert (answer.error_code, metadata.error_code, flights.error_code) == (0, 0, UNKNOWN_TOPIC_OR_PARTITION)
    (voter,) = metadata.current_voters
    (observer,) = metadata.observers
    assert metadata.leader_id == voter.replica_id
    assert {voter.replica_id, observer.replica_id} == {0, 1}
    assert metadata.leader_epoch > 0
    assert metadata.high_watermark == voter.log_end_offset > 0
    assert observer.log_end_offset == -1
    if version == 2:
        (node,) = answer.nodes
        assert (node.node_id, node.listeners[0].port) == (voter.replica_id, cluster.brokers[voter.replica_id].port)


def test_kafka_pythons_admin_describes_it(cluster: BarnabasCluster) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        assert "__cluster_metadata" in str(admin.describe_metadata_quorum())


def test_the_leader_tells_the_idempotent_producers_of_a_partition(cluster: BarnabasCluster) -> None:
    cluster.create_topic("flights")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(7):
        producer.produce("flights", b"%d" % number)
        assert producer.flush(30) == 0
    request = DescribeProducersRequest(topics=[ProducersTopic(name="flights", partition_indexes=[0, 1])])
    leader = cluster.leader("flights")
    known, missing = cluster.ask(leader, request, 0).topics[0].partitions
    (state,) = known.active_producers
    assert (known.error_code, state.last_sequence, state.producer_epoch) == (0, 6, 0)
    assert state.current_txn_start_offset == -1
    assert missing.error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.ask(1 - leader, request, 0).topics[0].partitions[0].error_code == NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_are_finalized_together_or_not_at_all(cluster: BarnabasCluster, version: int) -> None:
    def update(**levels: int) -> UpdateFeaturesRequest:
        updates = [
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name.replace("_", "."), max_version_level=level)
            for name, level in levels.items()
        ]
        return UpdateFeaturesRequest(timeout_ms=1000, feature_updates=updates, validate_only=False)

    answer = cluster.ask(0, update(barnabas_metadata_version=2), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    if version < 2:
        assert [(each.feature, each.error_code) for each in answer.results] == [("barnabas.metadata.version", 0)]
    refused = cluster.ask(0, update(barnabas_metadata_version=2, nope=1), version)
    assert refused.error_code == INVALID_UPDATE_VERSION
    assert "feature nope" in refused.error_message


@pytest.mark.parametrize("version", [3, 4])
def test_clients_are_told_the_features_in_force(cluster: BarnabasCluster, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = cluster.ask(1, request, version)
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert finalized == {"barnabas.metadata.version": 2, "eligible.leader.replicas.version": 1}
    assert {each.name for each in answer.supported_features} == finalized.keys()
    assert answer.finalized_features_epoch > 0
    assert version >= 4 or all(each.min_version > 0 for each in answer.supported_features)


def test_a_broker_that_does_not_support_a_level_does_not_start(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path, brokers=1) as alone:
        assert alone.stop(0) == 0
        with closing(sqlite3.connect(tmp_path / "metadata.sqlite")) as database, database:
            later = json.dumps({"levels": {"barnabas.metadata.version": 9}}).encode()
            database.execute("UPDATE documents SET value = ? WHERE key = 'features'", (later,))
        alone.brokers[0].launch()
        assert alone.brokers[0].wait_for_end() == 1
        assert "finalized at level 9; this version supports 1 to 2" in alone.logs_text()
