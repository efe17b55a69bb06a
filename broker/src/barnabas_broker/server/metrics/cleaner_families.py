"""The metrics of compaction and its failures, under the names that JMX exporters give Kafka's MBeans."""

from collections import Counter
from collections.abc import Callable, Iterator

from barnabas_broker.server.metrics.exposition import Family, Sample, labels, single
from barnabas_broker.storage.cleaner.manager import LogCleaner

_MANAGER = "kafka_log_logcleanermanager_"
_CLEANER = "kafka_log_logcleaner_"


def cleaner_families(cleaner: LogCleaner, monotonic_s: Callable[[], float], log_dirs: list[str]) -> list[Family]:
    """Return the metric families for dirty logs, partitions whose compaction failed, and compactions."""
    return [*_manager_families(cleaner, monotonic_s), *_failure_families(cleaner, log_dirs), *_round_families(cleaner)]


def _manager_families(cleaner: LogCleaner, monotonic_s: Callable[[], float]) -> list[Family]:
    stats = cleaner.stats

    def since_last_look_ms() -> Iterator[Sample]:
        if stats.last_look_s is not None:
            yield Sample("", int((monotonic_s() - stats.last_look_s) * 1000))

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
            since_last_look_ms,
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
