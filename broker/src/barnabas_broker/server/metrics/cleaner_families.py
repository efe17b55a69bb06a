"""The metrics of compaction and its failures, under the names that JMX exporters give Kafka's MBeans."""

from collections import Counter
from collections.abc import Callable, Iterator

from barnabas_broker.server.metrics.exposition import Family, Sample, labels
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
        _gauge(
            f"{_MANAGER}max_dirty_percent",
            "Largest percentage of dirty bytes in a log",
            lambda: stats.max_dirty_percent,
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
        _counter(
            "barnabas_cleaner_failures_total",
            "Number of failed log compactions",
            lambda: cleaner.backoff.failures_total,
        ),
    ]


def _round_families(cleaner: LogCleaner) -> list[Family]:
    stats = cleaner.stats
    return [
        _gauge(
            f"{_CLEANER}cleaner_recopy_percent",
            "Bytes written by the last compaction of a log, as a percentage of the bytes read",
            lambda: stats.recopy_percent,
        ),
        _gauge(
            f"{_CLEANER}max_clean_time_secs",
            "Duration in seconds of the longest compaction of a log since the start of the broker",
            lambda: stats.longest_round_s,
        ),
        _gauge(
            f"{_CLEANER}max_buffer_utilization_percent",
            "Percentage of log.cleaner.dedupe.buffer.size that the last compaction of a log used",
            lambda: stats.map_utilization_percent,
        ),
        _gauge(
            "barnabas_cleaner_last_round_seconds",
            "Duration in seconds of the last compaction of a log",
            lambda: stats.last_round_s,
        ),
        _counter("barnabas_cleaner_rounds_total", "Number of completed log compactions", lambda: stats.rounds),
        _counter("barnabas_cleaner_read_bytes_total", "Bytes that compaction has read", lambda: stats.bytes_read),
        _counter(
            "barnabas_cleaner_written_bytes_total", "Bytes that compaction has written", lambda: stats.bytes_written
        ),
        _counter(
            "barnabas_cleaner_records_without_key_total",
            "Number of records that compaction removed because they have no key",
            lambda: stats.records_without_key,
        ),
        _counter(
            "barnabas_cleaner_batches_not_understood_total",
            "Number of batches that compaction kept unchanged because their records cannot be decoded",
            lambda: stats.batches_not_understood,
        ),
        _counter(
            "barnabas_cleaner_process_starts_total",
            "Number of times that the helper process for compaction was started",
            lambda: cleaner.helper_starts,
        ),
    ]


def _gauge(name: str, help_text: str, value: Callable[[], float]) -> Family:
    return Family(name, "gauge", help_text, lambda: [Sample("", value())])


def _counter(name: str, help_text: str, value: Callable[[], int]) -> Family:
    return Family(name, "counter", help_text, lambda: [Sample("", value())])
