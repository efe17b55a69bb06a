"""The metrics of each partition that this broker leads, and of the metadata.

The names of partitions' metrics are those of Kafka's MBeans and of kafka_exporter. Only the leader exports a partition,
so that sums over all brokers count each partition once.

The metrics of the metadata are about ignored configs, stray logs, and documents that are unreadable or had to be
restored. For an offline log dir the number of stray logs is exported, but neither their size nor any other metric of
disk space, because these values were read before the disk failed.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.elections import is_lost
from barnabas_broker.metadata.controller.decisions.fencing import is_reassigned
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerSessions
from barnabas_broker.replication.leader_replica import IsrChanges
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import (
    Family,
    Hosted,
    Sample,
    Totals,
    by_partition,
    is_at_min_isr,
    is_under_min_isr,
    is_under_replicated,
    labels,
    single,
)
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.log_dirs.log_dir_loader import StrayTotal

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


def replication_families(
    fetchers: Fetchers, followers: FollowerSessions, isr_changes: IsrChanges, hosted: Hosted
) -> list[Family]:
    """Return the metric families for fetchers, replication traffic and in-sync replicas."""
    return [*_fetchers(fetchers), *_traffic(fetchers, followers, hosted.totals), *_in_sync(isr_changes, hosted.totals)]


def _fetchers(fetchers: Fetchers) -> list[Family]:
    def lags() -> Iterator[Sample]:
        for each in fetchers.status():
            topic, partition = each.topic_partition
            yield Sample(f'leader="{each.leader_id}",topic="{topic}",partition="{partition}"', each.lag)

    def max_lag() -> Iterator[Sample | None]:
        most = 0
        for each in fetchers.status():
            most = max(most, each.lag)
            yield None
        yield Sample("", most)

    def failing() -> Iterator[Sample | None]:
        count = 0
        for each in fetchers.status():
            count += each.is_failing
            yield None
        yield Sample("", count)

    return [
        Family(
            "kafka_server_fetcherlagmetrics_consumerlag",
            "gauge",
            "Lag of the follower on this broker: the offsets below the leader's high watermark that "
            "are not fetched yet",
            lags,
        ),
        Family(
            "kafka_server_replicafetchermanager_maxlag",
            "gauge",
            "Largest lag of the followers on this broker, in offsets",
            max_lag,
        ),
        Family(
            "kafka_server_replicafetchermanager_failedpartitionscount",
            "gauge",
            "Number of partitions whose last fetch from the leader failed",
            failing,
        ),
    ]


def _traffic(fetchers: Fetchers, followers: FollowerSessions, totals: Totals) -> list[Family]:
    traffic = "kafka_server_brokertopicmetrics_replicationbytes"
    return [
        single(
            f"{traffic}in_total",
            "counter",
            "Bytes that the follower replicas on this broker have fetched from leaders",
            totals.replication_bytes_in,
        ),
        single(
            f"{traffic}out_total",
            "counter",
            "Bytes that the leader replicas on this broker have sent to followers",
            totals.replication_bytes_out,
        ),
        single(
            "kafka_server_leaderreplication_throttled_bytes_total",
            "counter",
            "Bytes sent to throttled replicas, which leader.replication.throttled.rate limits",
            followers.throttle.bytes_total,
        ),
        single(
            "kafka_server_followerreplication_throttled_bytes_total",
            "counter",
            "Bytes fetched by throttled replicas, which follower.replication.throttled.rate limits",
            fetchers.throttle.bytes_total,
        ),
    ]


def _in_sync(isr_changes: IsrChanges, totals: Totals) -> list[Family]:
    prefix = "kafka_server_replicamanager_"
    return [
        single(
            f"{prefix}isrshrinks_total", "counter", "Number of ISR changes that removed a replica", totals.isr_shrinks
        ),
        single(
            f"{prefix}isrexpands_total", "counter", "Number of ISR changes that added a replica", totals.isr_expands
        ),
        single(
            f"{prefix}failedisrupdates_total",
            "counter",
            "Number of ISR changes that were refused, or whose outcome is unknown",
            isr_changes.failed_total,
        ),
    ]


_MANAGER = "kafka_log_logcleanermanager_"
_CLEANER = "kafka_log_logcleaner_"


def cleaner_families(cleaner: LogCleaner, monotonic_s: Callable[[], float], log_dirs: list[str]) -> list[Family]:
    """Return the metric families for dirty logs, partitions whose compaction failed, and compactions."""
    return [*_manager_families(cleaner, monotonic_s), *_failure_families(cleaner, log_dirs), *_round_families(cleaner)]


def _manager_families(cleaner: LogCleaner, monotonic_s: Callable[[], float]) -> list[Family]:
    stats = cleaner.stats

    def since_last_search_ms() -> Iterator[Sample]:
        if stats.last_search_s is not None:
            yield Sample("", int((monotonic_s() - stats.last_search_s) * 1000))

    return [
        single(
            f"{_MANAGER}max_dirty_percent",
            "gauge",
            "Largest percentage of dirty bytes in a log",
            stats.max_dirty_percent,
        ),
        Family(
            f"{_MANAGER}time_since_last_run_ms",
            "gauge",
            "Milliseconds since the cleaner last looked for dirty logs",
            since_last_search_ms,
        ),
    ]


def _failure_families(cleaner: LogCleaner, log_dirs: list[str]) -> list[Family]:
    def per_dir(of_partition: Callable[[int], int]) -> Iterator[Sample]:
        totals = Counter(dict.fromkeys(log_dirs, 0))
        for failed in cleaner.backoff.failed.values():
            totals[failed.log_dir] += of_partition(failed.dirty_bytes)
        for path, total in totals.items():
            yield Sample(labels(logDirectory=path), total)

    return [
        Family(
            f"{_MANAGER}uncleanable_partitions_count",
            "gauge",
            "Number of partitions whose compaction failed and will be tried again",
            lambda: per_dir(lambda _: 1),
        ),
        Family(
            f"{_MANAGER}uncleanable_bytes",
            "gauge",
            "Dirty bytes in the partitions whose compaction failed",
            lambda: per_dir(lambda dirty_bytes: dirty_bytes),
        ),
        single(
            "barnabas_cleaner_failures_total",
            "counter",
            "Number of failed log compactions",
            cleaner.backoff.failures_total,
        ),
    ]


def _round_families(cleaner: LogCleaner) -> list[Family]:
    stats, ours = cleaner.stats, "barnabas_cleaner_"
    gauges = {
        f"{_CLEANER}cleaner_recopy_percent": (
            "Bytes written by the last compaction of a log, as a percentage of the bytes read",
            stats.recopy_percent,
        ),
        f"{_CLEANER}max_clean_time_secs": (
            "Duration in seconds of the longest compaction of a log since the start of the broker",
            stats.longest_round_s,
        ),
        f"{_CLEANER}max_buffer_utilization_percent": (
            "Percentage of log.cleaner.dedupe.buffer.size that the last compaction of a log used",
            stats.map_utilization_percent,
        ),
        f"{ours}last_round_seconds": ("Duration in seconds of the last compaction of a log", stats.last_round_s),
    }
    counters = {
        "rounds": ("Number of completed log compactions", stats.rounds),
        "read_bytes": ("Bytes that compaction has read", stats.bytes_read),
        "written_bytes": ("Bytes that compaction has written", stats.bytes_written),
        "records_without_key": (
            "Number of records that compaction removed because they have no key",
            stats.records_without_key,
        ),
        "batches_not_understood": (
            "Number of batches that compaction kept unchanged because their records cannot be decoded",
            stats.batches_not_understood,
        ),
        "process_starts": (
            "Number of times that the helper process for compaction was started",
            cleaner.helper_starts,
        ),
    }
    return [
        *(single(name, "gauge", *each) for name, each in gauges.items()),
        *(single(f"{ours}{name}_total", "counter", *each) for name, each in counters.items()),
    ]


def metadata_families(environment: HandlerEnvironment) -> list[Family]:
    """Return the metric families of the metadata; in a healthy cluster, all their values are 0."""
    return [
        Family(
            "barnabas_ignored_configs",
            "gauge",
            "1 for each stored setting that this broker ignores; the broker's log has the reasons",
            lambda: [
                Sample(labels(resource=each.resource, name=each.name, setting=each.setting), 1)
                for each in environment.ignored_configs()
            ],
        ),
        _stray_logs(
            environment,
            "barnabas_stray_logs",
            "Number of logs that are not served because their topic is not in the metadata",
            lambda total: total.logs,
            includes_offline=True,
        ),
        _stray_logs(
            environment,
            "barnabas_stray_log_bytes",
            "Bytes of stray logs in online log dirs; stray logs are not served because the metadata lacks their topic",
            lambda total: total.size_bytes,
        ),
        single(
            "barnabas_unreadable_documents",
            "gauge",
            "Number of documents in the metadata store that cannot be read; the broker's log names them",
            len(environment.image.unreadable),
        ),
        single(
            "barnabas_restored_documents_total",
            "counter",
            "Number of documents that this broker wrote to the metadata store again, because the store had lost "
            "them or had older versions",
            environment.image.restored_total,
        ),
    ]


def _stray_logs(
    environment: HandlerEnvironment,
    name: str,
    help_text: str,
    value: Callable[[StrayTotal], int],
    *,
    includes_offline: bool = False,
) -> Family:
    def samples() -> list[Sample]:
        totals = environment.logs.strays.totals()
        none = StrayTotal(0, 0)
        return [
            Sample(labels(log_dir=each.path), value(totals.get(each.path, none)))
            for each in environment.logs.log_dirs
            if each.is_online or (includes_offline and each.path in totals)
        ]

    return Family(name, "gauge", help_text, samples)


def controller_families(environment: HandlerEnvironment) -> list[Family]:
    """Return the metric families; values that are not about this broker are the same on all brokers."""
    image, prefix = environment.image, "kafka_controller_kafkacontroller_"
    return [
        single(
            f"{prefix}activecontrollercount",
            "gauge",
            "1 if this broker is the controller, else 0",
            int(image.controller_id == environment.broker_id),
        ),
        single(f"{prefix}activebrokercount", "gauge", "Number of live brokers", len(image.live)),
        single(f"{prefix}fencedbrokercount", "gauge", "Number of fenced brokers", len(image.brokers) - len(image.live)),
        _partitions(
            environment,
            f"{prefix}offlinepartitionscount",
            "Number of partitions without a live leader",
            lambda state: state.leader not in image.live,
        ),
        _partitions(
            environment,
            "barnabas_partitions_lacking_records",
            "Number of partitions that are offline because every replica lacks committed records; `barnabas status` "
            "lists them",
            is_lost,
        ),
        _partitions(
            environment,
            f"{prefix}preferredreplicaimbalancecount",
            "Number of partitions whose leader is not the preferred replica",
            lambda state: state.leader != state.replicas[0],
        ),
        _partitions(
            environment,
            "kafka_server_replicamanager_reassigningpartitions",
            "Number of partitions that this broker leads and that are being reassigned",
            lambda state: state.leader == environment.broker_id and is_reassigned(state),
        ),
        single(
            "kafka_controller_controllerstats_leaderelections_total",
            "counter",
            "Number of leaders that this broker has elected",
            environment.metadata_writer.partitions.elections_total,
        ),
    ]


def _partitions(
    environment: HandlerEnvironment, name: str, help_text: str, counts: Callable[[PartitionState], bool]
) -> Family:
    def samples() -> Iterator[Sample | None]:
        total = 0
        for topic in list(environment.image.topics.values()):
            for state in topic.partitions:
                total += counts(state)
                yield None
        yield Sample("", total)

    return Family(name, "gauge", help_text, samples)
