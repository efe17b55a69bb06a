"""The placement of replicas on brokers and log dirs.

kafka-python sends the requests, because librdkafka lacks DescribeLogDirs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from barnabas_core import kafka_uuid
from barnabas_core.placement import DiskSpace
from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.kafka.admin_client import TIMEOUT_MS, admin_client
from barnabas_jobs.planning.rebalance_plan import LogDir, Placement, Replica


def placement_of(bootstrap: str, timeout_ms: int = TIMEOUT_MS) -> Placement:
    """Return the present placement. Raises JobFailed if brokers do not answer or return an error."""
    with admin_client(bootstrap, "brokers do not report the replicas in their log dirs", timeout_ms) as admin:
        return _placement(admin)


def _placement(admin: Any) -> Placement:
    alive = [each for each in admin.describe_cluster()["brokers"] if not each.get("is_fenced")]
    topics = [each for each in admin.describe_topics() if each["error_code"] == 0]
    moving = {TopicPartition(each.topic, each.partition) for each in admin.list_partition_reassignments()}
    answers = admin.describe_log_dirs(brokers=[each["broker_id"] for each in alive])
    log_dirs = [(answer["broker"], each) for answer in answers for each in answer["log_dirs"] if not each["error_code"]]
    described = {
        TopicPartition(topic["name"], part["partition_index"]): part for topic in topics for part in topic["partitions"]
    }
    away = {where for where, part in described.items() if set(part["isr_nodes"]) != set(part["replica_nodes"])}
    changing = {where for where, _ in _held(log_dirs, is_future=True)}
    return Placement(
        racks={each["broker_id"]: each["rack"] for each in alive},
        spaces={_log_dir(*each): DiskSpace(each[1]["usable_bytes"], each[1]["total_bytes"]) for each in log_dirs},
        rows={where: tuple(part["replica_nodes"]) for where, part in described.items()},
        leaders={where: part["leader_id"] for where, part in described.items()},
        replicas=_replicas(log_dirs),
        topic_ids={topic["name"]: kafka_uuid.to_text(UUID(topic["topic_id"])) for topic in topics},
        internal=frozenset(topic["name"] for topic in topics if topic["is_internal"]),
        left_alone=frozenset(moving | away | changing),
    )


def _replicas(log_dirs: Iterable[tuple[int, Mapping[str, Any]]]) -> dict[TopicPartition, dict[int, Replica]]:
    found: dict[TopicPartition, dict[int, Replica]] = {}
    for partition, replica in _held(log_dirs, is_future=False):
        found.setdefault(partition, {})[replica.log_dir.broker] = replica
    return found


def _held(
    log_dirs: Iterable[tuple[int, Mapping[str, Any]]], *, is_future: bool
) -> Iterator[tuple[TopicPartition, Replica]]:
    """Yield the current replicas. If `is_future` is true, yield only the future replicas instead.

    A future replica is one that a broker is copying from one of its log dirs to another.
    """
    for broker, log_dir in log_dirs:
        for topic in log_dir["topics"]:
            for part in topic["partitions"]:
                if part["is_future_key"] is is_future:
                    where = TopicPartition(topic["name"], part["partition_index"])
                    yield where, Replica(_log_dir(broker, log_dir), part["partition_size"])


def _log_dir(broker: int, log_dir: Mapping[str, Any]) -> LogDir:
    return LogDir(broker, log_dir["log_dir"])
