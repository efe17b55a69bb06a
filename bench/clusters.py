"""The clusters that are measured, of three brokers by default, and the questions that differ between their kinds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kafka.protocol.admin import DescribeClusterRequest, DescribeQuorumRequest

from bench.clients.job import PartMissing
from bench.peers import SETTINGS
from harness.ask import ask
from harness.cluster import BarnabasCluster, prepare_cluster
from harness.kafka_cluster import KafkaCluster, prepare_kafka_cluster
from harness.kafka_jars import JarsMissing

BROKERS: Final = 3
# Both values are half of the defaults, so each crash costs the run less time.
SESSION_MS: Final = 4_500
HEARTBEAT_MS: Final = 1_000
# These are the same for both kinds. Leaders stay where a row puts them.
CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "auto.leader.rebalance.enable": "false",
    "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "broker.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.replication.factor": str(BROKERS),
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.replication.factor": str(BROKERS),
    "share.coordinator.state.topic.replication.factor": str(BROKERS),
}
NOTHING: Final[Mapping[str, str]] = {}
QUORUM_TOPIC: Final = "__cluster_metadata"

Cluster = BarnabasCluster | KafkaCluster


class Prepare(Protocol):
    """Brokers that are not running: `more` adds to their settings, `listeners` has one of each beside its PLAINTEXT."""

    def __call__(
        self, folder: Path, more: Mapping[str, str] = ..., listeners: Sequence[str] = ..., brokers: int = ...
    ) -> Cluster: ...


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """A kind of cluster: `prepare` may raise PartMissing; `controller` returns the id of the current controller."""

    prepare: Prepare
    controller: Callable[[Cluster], int]


def _barnabas(
    folder: Path, more: Mapping[str, str] = NOTHING, listeners: Sequence[str] = (), brokers: int = BROKERS
) -> Cluster:
    return prepare_cluster(folder, brokers, {**CLUSTER_SETTINGS, **more}, listeners=listeners)


def _kafka(
    folder: Path, more: Mapping[str, str] = NOTHING, listeners: Sequence[str] = (), brokers: int = BROKERS
) -> Cluster:
    try:
        return prepare_kafka_cluster(folder, brokers, {**CLUSTER_SETTINGS, **more}, listeners=listeners)
    except JarsMissing as missing:
        raise PartMissing(str(missing)) from None


def _barnabas_controller(cluster: Cluster) -> int:
    answer = ask(cluster.brokers[cluster.running[0]].port, DescribeClusterRequest(), 0)
    return int(answer.controller_id)


def _kafka_controller(cluster: Cluster) -> int:
    """Ask the quorum for its leader, which is the controller: metadata may name any broker."""
    topic = DescribeQuorumRequest.TopicData
    partition = topic.PartitionData(partition_index=0)
    request = DescribeQuorumRequest(topics=[topic(topic_name=QUORUM_TOPIC, partitions=[partition])])
    answer = ask(cluster.brokers[cluster.running[0]].port, request, 1)
    return int(answer.topics[0].partitions[0].leader_id)


CLUSTER_KINDS: Final[Mapping[str, ClusterKind]] = {
    "barnabas": ClusterKind(_barnabas, _barnabas_controller),
    "kafka": ClusterKind(_kafka, _kafka_controller),
}
