"""The broker's own metrics, under the names that Strimzi's JMX exporter rules give Kafka's MBeans."""

from collections.abc import Callable, Iterator

from barnabas_broker.handlers.services import Services
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, Sample, labels


def broker_families(services: Services) -> list[Family]:
    """Traffic, replicas, log dirs."""
    return [*_traffic(services), _untrue_batches(services), *_replicas(services), *_logs(services)]


def _traffic(services: Services) -> list[Family]:
    return [
        _topic_counter(services, "messagesin", "Records appended", lambda each: each.messages_in),
        _topic_counter(services, "bytesin", "Bytes appended", lambda each: each.bytes_in),
        _topic_counter(services, "bytesout", "Bytes read by clients", lambda each: each.bytes_out),
    ]


def _topic_counter(services: Services, name: str, help_text: str, value: Callable[[Partition], int]) -> Family:
    def samples() -> Iterator[Sample]:
        total = 0
        for topic in services.replicas.topics.values():
            topic_total = sum(map(value, topic.partitions.values()))
            total += topic_total
            yield Sample(labels(topic=topic.name), topic_total)
        yield Sample("", total)

    return Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", help_text, samples)


def _untrue_batches(services: Services) -> Family:
    def samples() -> Iterator[Sample]:
        for (client_id, untruth), count in services.trust.untrue.items():
            yield Sample(labels(client_id=client_id, outcome=untruth), count)

    name = "barnabas_untrue_batches_total"
    help_text = "Batches whose records were not what their header said, by client id: refused, or corrected"
    return Family(name, "counter", help_text, samples)


def _replicas(services: Services) -> list[Family]:
    prefix = "kafka_server_replicamanager_"
    return [
        _count(services, f"{prefix}partitioncount", "Partitions on this broker", _always),
        _count(services, f"{prefix}leadercount", "Partitions that this broker leads", lambda each: each.is_leader),
        _count(
            services,
            f"{prefix}underreplicatedpartitions",
            "Partitions led here with replicas out of sync",
            lambda each: each.is_leader and each.isr_size < len(each.state.replicas),
        ),
        _count(
            services,
            f"{prefix}underminisrpartitioncount",
            "Partitions led here that refuse acks=all",
            lambda each: each.is_leader and each.isr_size < each.isr_size_min,
        ),
        _count(
            services,
            f"{prefix}offlinereplicacount",
            "Replicas here whose disk has failed",
            lambda each: each.failure is not None,
        ),
        Family(
            f"{prefix}produceridcount",
            "gauge",
            "Idempotent producers that the partitions here know",
            lambda: [Sample("", services.logs.producer_count)],
        ),
    ]


def _always(_: Partition) -> bool:
    return True


def _count(services: Services, name: str, help_text: str, counts: Callable[[Partition], bool]) -> Family:
    return Family(name, "gauge", help_text, lambda: [Sample("", sum(map(counts, services.replicas.partitions())))])


def _logs(services: Services) -> list[Family]:
    return [
        Family(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "gauge",
            "Log directories that have failed",
            lambda: [Sample("", sum(not each.is_online for each in services.logs.log_dirs))],
        ),
        _of_partition(services, "kafka_log_log_size", "Bytes on disk", lambda each: each.log.size_bytes),
        _of_partition(services, "kafka_log_log_numlogsegments", "Segments", lambda each: len(each.log.segments)),
        _of_partition(services, "kafka_log_log_logstartoffset", "First offset", lambda each: each.log_start_offset),
        _of_partition(services, "kafka_log_log_logendoffset", "Next offset", lambda each: each.log.log_end_offset),
    ]


def _of_partition(services: Services, name: str, help_text: str, value: Callable[[Partition], int]) -> Family:
    def samples() -> Iterator[Sample]:
        for each in services.replicas.partitions():
            topic, partition = each.topic_partition
            yield Sample(f'topic="{topic}",partition="{partition}"', value(each))

    return Family(name, "gauge", help_text, samples)
