"""The metrics of compaction, as a scrape shows them."""

from scrape import shown

from barnabas_broker.server.metrics.partition_families import cleaner_families
from barnabas_broker.storage.cleaner.manager import Backoff, CleanerStats
from barnabas_core.topic_partition import TopicPartition


class Cleaner:
    """The parts of a cleaner that the metrics read."""

    def __init__(self) -> None:
        self.stats = CleanerStats()
        self.backoff = Backoff()
        self.helper_starts = 0


def told(cleaner: Cleaner) -> dict[str, str]:
    families = cleaner_families(cleaner, lambda: 20.0, ["/a", "/b"])  # type: ignore[arg-type]
    return shown(families)


def test_failed_partitions_and_their_bytes_are_shown_by_log_dir_until_they_succeed() -> None:
    cleaner = Cleaner()
    count = 'kafka_log_logcleanermanager_uncleanable_partitions_count{logDirectory="%s"}'
    size = 'kafka_log_logcleanermanager_uncleanable_bytes{logDirectory="%s"}'
    assert told(cleaner)[count % "/a"] == told(cleaner)[count % "/b"] == "0"
    for partition in (0, 1):
        cleaner.backoff.failure(TopicPartition("planes", partition), "damaged", "/a", 100, 1, 0)
    values = told(cleaner)
    assert (values[count % "/a"], values[size % "/a"], values[count % "/b"]) == ("2", "200", "0")
    cleaner.backoff.success(TopicPartition("planes", 0))
    values = told(cleaner)
    assert (values[count % "/a"], values["barnabas_cleaner_failures_total"]) == ("1", "2")


def test_the_results_of_cleaner_rounds_and_the_time_since_the_last_one_are_shown() -> None:
    cleaner = Cleaner()
    assert "kafka_log_logcleanermanager_time_since_last_run_ms" not in told(cleaner)
    cleaner.stats.last_search_s = 17.5
    cleaner.stats.recopy_percent = 12.5
    cleaner.stats.max_dirty_percent = 75.0
    cleaner.stats.rounds = 3
    values = told(cleaner)
    assert values["kafka_log_logcleanermanager_time_since_last_run_ms"] == "2500"
    assert values["kafka_log_logcleaner_cleaner_recopy_percent"] == "12.5"
    assert values["kafka_log_logcleanermanager_max_dirty_percent"] == "75"
    assert values["barnabas_cleaner_rounds_total"] == "3"
