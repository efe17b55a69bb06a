"""The metrics of traffic, replicas and disks, under the names that Strimzi's JMX exporter rules give Kafka's MBeans."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.server.metrics.exposition import Family, Sample, labels, single
from barnabas_broker.server.metrics.hosted import Hosted, TopicTotals, Totals, by_partition
from barnabas_broker.storage.disk.files import DiskUsage
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.log_manager import LogManager


def broker_families(trust: BatchTrust, logs: LogManager, hosted: Hosted) -> list[Family]:
    """Return the metric families for traffic, replicas and log dirs."""
    return [
        *_traffic(hosted.totals),
        _invalid_batches(trust),
        *_replicas(logs, hosted.totals),
        *_logs(logs, hosted),
        *disk_families(logs.log_dirs),
    ]


def _traffic(totals: Totals) -> list[Family]:
    return [
        _topic_counter(
            totals,
            "messagesin",
            "Number of records appended by clients; the series without a topic is the sum over all topics",
            lambda each: each.messages_in,
        ),
        _topic_counter(
            totals,
            "bytesin",
            "Bytes appended by clients; the series without a topic is the sum over all topics",
            lambda each: each.bytes_in,
        ),
        _topic_counter(
            totals,
            "bytesout",
            "Bytes read by clients; the series without a topic is the sum over all topics",
            lambda each: each.bytes_out,
        ),
    ]


def _topic_counter(totals: Totals, name: str, help_text: str, value: Callable[[TopicTotals], int]) -> Family:
    def samples() -> Iterator[Sample]:
        total = 0
        for topic, of_topic in totals.topics.items():
            total += value(of_topic)
            yield Sample(labels(topic=topic), value(of_topic))
        yield Sample("", total)

    return Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", help_text, samples)


def _invalid_batches(trust: BatchTrust) -> Family:
    def samples() -> Iterator[Sample]:
        for (client_id, outcome), count in trust.invalid.items():
            yield Sample(labels(client_id=client_id, outcome=outcome), count)

    name = "barnabas_invalid_batches_total"
    help_text = (
        "Number of batches whose header contradicted their records, by client id and outcome (refused or corrected)"
    )
    return Family(name, "counter", help_text, samples)


def _replicas(logs: LogManager, totals: Totals) -> list[Family]:
    counts = {
        "partitioncount": ("Number of partitions that have a replica on this broker", totals.partitions),
        "leadercount": ("Number of partitions that this broker leads", totals.led),
        "underreplicatedpartitions": (
            "Number of partitions that this broker leads and that have out-of-sync replicas",
            totals.under_replicated,
        ),
        "underminisrpartitioncount": (
            "Number of partitions that this broker leads and that refuse acks=all for lack of in-sync replicas",
            totals.under_min_isr,
        ),
        "offlinereplicacount": (
            "Number of replicas on this broker that are offline because their disk failed",
            totals.offline,
        ),
        "produceridcount": (
            "Number of idempotent producers whose state this broker keeps, summed over its partitions",
            logs.producer_count,
        ),
    }
    return [
        single(f"kafka_server_replicamanager_{name}", "gauge", help_text, value)
        for name, (help_text, value) in counts.items()
    ]


def _logs(logs: LogManager, hosted: Hosted) -> list[Family]:
    return [
        single(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "gauge",
            "Number of log dirs that are offline because their disk failed",
            sum(not each.is_online for each in logs.log_dirs),
        ),
        by_partition(
            hosted,
            "kafka_log_log_size",
            "Size in bytes of the replica's log on this broker",
            lambda each: each.log.segments.size_bytes,
        ),
        by_partition(
            hosted,
            "kafka_log_log_numlogsegments",
            "Number of segments of the replica's log on this broker",
            lambda each: len(each.log.segments),
        ),
        by_partition(
            hosted,
            "kafka_log_log_logstartoffset",
            "Log start offset of the replica on this broker",
            lambda each: each.log.log_start_offset,
        ),
        by_partition(
            hosted,
            "kafka_log_log_logendoffset",
            "Log end offset of the replica on this broker",
            lambda each: each.log.log_end_offset,
        ),
    ]


def disk_families(log_dirs: Sequence[LogDir]) -> list[Family]:
    """Return the metric families for the disk space of each online log dir."""
    free = "Free bytes that the broker can use on the disk of a log dir"
    return [
        _of_disk(
            log_dirs,
            "barnabas_log_dir_total_bytes",
            "Total bytes of the disk of a log dir",
            lambda usage: usage.total_bytes,
        ),
        _of_disk(log_dirs, "barnabas_log_dir_usable_bytes", free, lambda usage: usage.usable_bytes),
    ]


def _of_disk(log_dirs: Sequence[LogDir], name: str, help_text: str, value: Callable[[DiskUsage], int]) -> Family:
    """Return a metric family for the online log dirs only: the usage of an offline log dir may be wrong."""

    def samples() -> Iterator[Sample]:
        for each in log_dirs:
            if each.is_online:
                with suppress(StorageError):
                    yield Sample(labels(log_dir=each.path), value(each.usage()))

    return Family(name, "gauge", help_text, samples)
