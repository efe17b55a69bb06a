"""The metrics of each partition that this broker leads, under the names of Kafka's MBeans and of kafka_exporter.

Only the leader exports a partition, so that sums over all brokers count each partition once.
"""

from collections.abc import Callable

from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, single
from barnabas_broker.server.metrics.hosted import (
    Hosted,
    by_partition,
    is_at_min_isr,
    is_under_min_isr,
    is_under_replicated,
)

PartitionValue = Callable[[Partition], int]


def partition_families(hosted: Hosted) -> list[Family]:
    """Return the metric families for offsets, leaders, replicas and ISR."""
    exporter, kafka = "kafka_topic_partition_", "kafka_cluster_partition_"
    return [
        _led(
            hosted,
            f"{exporter}current_offset",
            "High watermark of the partition, below which consumers can read",
            lambda each: each.log.high_watermark,
        ),
        _led(
            hosted,
            f"{exporter}oldest_offset",
            "Log start offset of the partition",
            lambda each: each.log.log_start_offset,
        ),
        _led(hosted, f"{exporter}leader", "Id of the broker that leads the partition", lambda each: each.state.leader),
        _led(hosted, f"{exporter}leader_is_preferred", "1 if the preferred replica leads, else 0", _is_preferred),
        _led(hosted, f"{exporter}replicas", "Number of replicas", _replica_count),
        _led(hosted, f"{exporter}in_sync_replica", "Number of in-sync replicas", lambda each: each.isr_size),
        _led(
            hosted,
            f"{exporter}under_replicated_partition",
            "1 if a replica is out of sync, else 0",
            is_under_replicated,
        ),
        _led(hosted, f"{kafka}replicascount", "Number of replicas", _replica_count),
        _led(hosted, f"{kafka}insyncreplicascount", "Number of in-sync replicas", lambda each: each.isr_size),
        _led(hosted, f"{kafka}underreplicated", "1 if a replica is out of sync, else 0", is_under_replicated),
        _led(hosted, f"{kafka}underminisr", "1 if acks=all is refused, else 0", is_under_min_isr),
        _led(
            hosted,
            f"{kafka}atminisr",
            "1 if the partition has just as many in-sync replicas as min.insync.replicas requires, else 0",
            is_at_min_isr,
        ),
        single(
            "kafka_server_replicamanager_atminisrpartitioncount",
            "gauge",
            "Number of partitions that this broker leads with just as many in-sync replicas as min.insync.replicas",
            hosted.totals.at_min_isr,
        ),
    ]


def _led(hosted: Hosted, name: str, help_text: str, value: PartitionValue) -> Family:
    return by_partition(hosted, name, help_text, lambda each: None if each.leader is None else value(each))


def _replica_count(partition: Partition) -> int:
    return len(partition.state.replicas)


def _is_preferred(partition: Partition) -> int:
    return int(partition.state.leader == partition.state.replicas[0])
