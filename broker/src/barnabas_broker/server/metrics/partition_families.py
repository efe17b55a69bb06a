"""The partitions that this broker leads, one by one: under the names of Kafka's Partition MBeans and kafka_exporter's.

Only the leader tells them, so that sums over all brokers count each partition once.
"""

from collections.abc import Callable, Iterator

from barnabas_broker.handlers.services import Services
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, Sample

Value = Callable[[Partition], int]


def partition_families(services: Services) -> list[Family]:
    """Offsets, leader, replicas and ISR."""
    exporter, kafka = "kafka_topic_partition_", "kafka_cluster_partition_"
    return [
        _led(services, f"{exporter}current_offset", "High watermark", lambda each: each.high_watermark),
        _led(services, f"{exporter}oldest_offset", "First offset", lambda each: each.log_start_offset),
        _led(services, f"{exporter}leader", "Broker that leads", lambda each: each.leader_id),
        _led(services, f"{exporter}leader_is_preferred", "1 where the first replica leads", _is_preferred),
        _led(services, f"{exporter}replicas", "Replicas", _replica_count),
        _led(services, f"{exporter}in_sync_replica", "Replicas in sync", lambda each: each.isr_size),
        _led(services, f"{exporter}under_replicated_partition", "1 with a replica out of sync", _is_under_replicated),
        _led(services, f"{kafka}replicascount", "Replicas", _replica_count),
        _led(services, f"{kafka}insyncreplicascount", "Replicas in sync", lambda each: each.isr_size),
        _led(services, f"{kafka}underreplicated", "1 with a replica out of sync", _is_under_replicated),
        _led(services, f"{kafka}underminisr", "1 where acks=all is refused", _is_under_min_isr),
        _led(services, f"{kafka}atminisr", "1 where one replica less would refuse acks=all", _is_at_min_isr),
        Family(
            "kafka_server_replicamanager_atminisrpartitioncount",
            "gauge",
            "Partitions led here of which one replica less would refuse acks=all",
            lambda: [Sample("", sum(map(_is_at_min_isr, _led_here(services))))],
        ),
    ]


def _led_here(services: Services) -> Iterator[Partition]:
    return (each for each in services.replicas.partitions() if each.is_leader)


def _led(services: Services, name: str, help_text: str, value: Value) -> Family:
    def samples() -> Iterator[Sample]:
        for each in _led_here(services):
            topic, partition = each.topic_partition
            yield Sample(f'topic="{topic}",partition="{partition}"', value(each))

    return Family(name, "gauge", help_text, samples)


def _replica_count(partition: Partition) -> int:
    return len(partition.state.replicas)


def _is_preferred(partition: Partition) -> int:
    return int(partition.leader_id == partition.state.replicas[0])


def _is_under_replicated(partition: Partition) -> int:
    return int(partition.isr_size < len(partition.state.replicas))


def _is_under_min_isr(partition: Partition) -> int:
    return int(partition.isr_size < partition.isr_size_min)


def _is_at_min_isr(partition: Partition) -> int:
    return int(partition.isr_size == partition.isr_size_min)
