"""Reads name, type, help and labels of each metric from the pages that the real code makes.

Only series have labels, so each page is of a process that has some series of everything.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka.protocol.admin import AlterClientQuotasRequest
from kafka.protocol.producer import ProduceRequest
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from barnabas_broker.wire.records import Record, encode_batch
from barnabas_lag.exposition import CATALOGUE, OwnMetrics
from barnabas_operator.leader_election import Leadership
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.resources.kind import OFFSETS_RESET, READY, SCALING_ACTIVE, WITHIN_OBJECTIVE, Key
from harness.cluster import BarnabasCluster, prepare_cluster
from harness.codec_client import Connection
from harness.deadline import PATIENCE_S, wait_for

TOPIC: Final = "flights"
PRODUCE_VERSION: Final = 9
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.cleaner.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",
}
"""Settings of brokers that soon have something to report: failed compactions, and overdue transactions."""
CONDITIONS: Final = (READY, WITHIN_OBJECTIVE, OFFSETS_RESET, SCALING_ACTIVE)
NOW_MS: Final = 1_700_000_000_000
CREATED: Final = "_created"
"""The suffix of a series that prometheus_client adds to each counter and histogram: its begin."""
CLUSTER: Final = {"certificates": [{"name": "one-operator", "notAfter": "2026-01-01T00:00:00Z"}]}
"""The status of a secured Cluster."""
RUN: Final[Mapping[str, Any]] = {
    "phase": "Succeeded",
    "completionTime": "2026-01-01T00:00:00Z",
    "durationSeconds": 1,
    "records": {"done": 1, "total": 1},
    "recordsPerSecond": 1,
}
"""The status of a run with all fields."""
UNDER_WAY: Final[Mapping[str, Any]] = {
    "phase": "Running",
    "driverRunning": True,
    "lastCommitTime": "2026-01-01T00:00:00Z",
    "recordsBehind": 1,
}
"""The status of a continuous archive under way, with all fields."""


class Told(NamedTuple):
    """One metric; `labels` are in the order of the page, None if it has no series."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] | None


def broker_metrics(folder: Path) -> list[Told]:
    """Return the metrics of two brokers: one follows the other, and ignores a setting that its file contradicts."""
    with closing(prepare_cluster(folder, brokers=1, properties=SETTINGS)) as cluster:
        cluster.start()
        _set_quotas(cluster)
        client = cluster.client()
        client.create_topic_in("planes", cleanup_policy="compact", min_compaction_lag_ms="60000")
        cluster.add_broker(1, {"log.cleaner.max.compaction.lag.ms": "1000"})
        cluster.start(1)
        cluster.create_topic(TOPIC, assignment=[[0, 1]])
        client.write(TOPIC, [b"one"])
        with closing(client.consumer("readers")) as consumer:
            wait_for(lambda: _is_committed(consumer), bool)
        _send_invalid_batch(cluster)
        _leave_transaction_open(cluster)
        with closing(_acquire(cluster)):
            return wait_for(lambda: _metrics(*(cluster.page(number, "/metrics")[1] for number in (0, 1))), _have_series)


def exporter_metrics() -> list[Told]:
    """Return the exporter's own metrics, and its catalogue of those of the cluster."""
    own = OwnMetrics(lambda: 0.0, 15.0)
    own.request_failed("Metadata")
    own.set_cut_off({"max-groups": 0})
    of_cluster = [Told(each.name, "gauge", each.text, each.labels) for each in CATALOGUE]
    return [*of_cluster, *_metrics(generate_latest(own.registry).decode())]


def operator_metrics() -> list[Told]:
    """Return the metrics of an operator with a Cluster, a ConsumerGroup and two MaintenanceJobs."""
    inventory = Inventory()
    metrics = OperatorMetrics(inventory)
    metrics.add_leadership(Leadership.without_others())
    metrics.round_ended(Key("air", "one"), 0.1, is_good=True)
    metrics.watch_failed("Topic")
    inventory.keep(
        _resource("Cluster", {"maintenance": [{"name": "nightly", "maxAgeSeconds": 1}]}, CLUSTER), is_gone=False
    )
    cron_job = {"name": "one-nightly", "namespace": "air", "creationTimestamp": "2026-01-01T00:00:00Z"}
    inventory.keep_cron_job({"metadata": cron_job}, is_gone=False)
    inventory.keep(_resource("MaintenanceJob", {"cluster": "one", "job": "archive"}, RUN), is_gone=False)
    archive = {"cluster": "one", "job": "archive", "options": {"continuous": "true"}}
    inventory.keep(_resource("MaintenanceJob", archive, UNDER_WAY, name="under-way"), is_gone=False)
    inventory.keep(_resource("ConsumerGroup", *_group()), is_gone=False)
    return _metrics(asyncio.run(metrics.page()).decode())


def _group() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return spec and status of a group with all fields."""
    objective = {"maxRecords": 1, "maxSeconds": 1, "maxRetentionPercent": 1}
    conditions = [{"type": each, "status": "True", "reason": "Test"} for each in CONDITIONS]
    status = {"lag": 0, "seconds": 0, "members": 1, "evaluation": "OK", "replicas": 1, "conditions": conditions}
    return {"cluster": "one", "lagObjective": objective}, status


def _resource(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any], name: str = "one") -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": "air"}, "spec": spec, "status": status}


def _metrics(*pages: str) -> list[Told]:
    """Return the metrics in the order of the first page, with the labels of the series of all pages."""
    found: dict[str, Told] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            seen = found.get(name, Told(name, family.type, family.documentation, None))
            found[name] = seen._replace(labels=_labels(family, seen.labels))
    return [each for each in found.values() if not each.name.endswith(CREATED)]


def _labels(family: Metric, seen: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the labels of a metric, without `le`, which only distinguishes the buckets of a histogram."""
    if not family.samples:
        return seen
    names = [*(seen or ()), *(name for sample in family.samples for name in sample.labels if name != "le")]
    return tuple(dict.fromkeys(names))


def _have_series(metrics: Sequence[Told]) -> bool:
    return all(each.labels is not None for each in metrics)


def _is_committed(consumer: Consumer) -> bool:
    """Commit; return False while the coordinator still loads."""
    with suppress(KafkaException):
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        return True
    return False


def _leave_transaction_open(cluster: BarnabasCluster) -> None:
    """Leave a transaction open, whose time is up after a second."""
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay", "transaction.timeout.ms": 1000}
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"undecided")
    assert producer.flush(PATIENCE_S) == 0


def _acquire(cluster: BarnabasCluster) -> Connection:
    """Acquire records for a share group; return the connection, with which the group would leave the memory."""
    connection = Connection(cluster.brokers[0].port)
    topic_id = connection.request("Metadata", 12, {"topics": [{"name": TOPIC}]}).topics[0].topic_id
    key = f"workers:{urlsafe_b64encode(topic_id.bytes).decode().rstrip('=')}:0"
    state = {"topic_id": topic_id, "partitions": [{"partition": 0, "state_epoch": 1, "start_offset": 0}]}
    found = wait_for(
        lambda: connection.request("FindCoordinator", 6, {"key_type": 2, "coordinator_keys": [key]}).coordinators[0],
        lambda coordinator: not coordinator.error_code,
    )
    with Connection(found.port) as coordinator:
        wait_for(
            lambda: coordinator.request("InitializeShareGroupState", 0, {"group_id": "workers", "topics": [state]}),
            lambda answer: not answer.results[0].partitions[0].error_code,
        )
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]
    fields = {"group_id": "workers", "member_id": "one", "max_wait_ms": 10_000, "topics": topics}
    connection.request("ShareFetch", 2, {**fields, "min_bytes": 1, "max_records": 1, "batch_size": 1})
    return connection


def _set_quotas(cluster: BarnabasCluster) -> None:
    """Set one of each kind, which nobody reaches."""
    entry = AlterClientQuotasRequest.EntryData
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    default = entry(
        entity=[entry.EntityData(entity_type="user", entity_name=None)],
        ops=[entry.OpData(key=key, value=2.0**40, remove=False) for key in keys],
    )
    (answered,) = cluster.ask(0, AlterClientQuotasRequest(entries=[default], validate_only=False), 1).entries
    assert answered.error_code == 0


def _send_invalid_batch(cluster: BarnabasCluster) -> None:
    """Send a batch whose header has a largest timestamp that no record has."""
    batch = encode_batch([Record(0, NOW_MS, b"key", b"value")], max_timestamp_ms=NOW_MS - 1)
    topic = ProduceRequest.TopicProduceData
    data = topic(name=TOPIC, partition_data=[topic.PartitionProduceData(index=0, records=bytes(batch))])
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
    (answered,) = cluster.ask(0, request, PRODUCE_VERSION).responses
    assert answered.partition_responses[0].error_code == 0
