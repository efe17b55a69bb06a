"""The metrics of replication: what followers here lack, what goes between brokers, how in-sync replicas change."""

from collections.abc import Callable, Iterator

from barnabas_broker.handlers.services import Services
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, Sample, labels


def replication_families(services: Services) -> list[Family]:
    """Fetchers, traffic, in-sync replicas."""
    return [*_fetchers(services), *_traffic(services), *_in_sync(services)]


def _fetchers(services: Services) -> list[Family]:
    fetchers = services.fetchers

    def lags() -> Iterator[Sample]:
        for each in fetchers.status():
            topic, partition = each.topic_partition
            yield Sample(labels(leader=str(each.leader_id), topic=topic, partition=str(partition)), each.lag)

    return [
        Family(
            "kafka_server_fetcherlagmetrics_consumerlag",
            "gauge",
            "Committed offsets that a follower here does not have",
            lags,
        ),
        Family(
            "kafka_server_replicafetchermanager_maxlag",
            "gauge",
            "The largest of these lags",
            lambda: [Sample("", max((each.lag for each in fetchers.status()), default=0))],
        ),
        Family(
            "kafka_server_replicafetchermanager_failedpartitionscount",
            "gauge",
            "Partitions whose last fetch from their leader failed",
            lambda: [Sample("", sum(each.is_failing for each in fetchers.status()))],
        ),
    ]


def _traffic(services: Services) -> list[Family]:
    fetchers, followers = services.fetchers, services.followers
    traffic = "kafka_server_brokertopicmetrics_replicationbytes"
    return [
        _total(services, f"{traffic}in_total", "Bytes fetched from leaders", lambda each: each.replication_bytes_in),
        _total(services, f"{traffic}out_total", "Bytes sent to followers", lambda each: each.replication_bytes_out),
        Family(
            "kafka_server_leaderreplication_throttled_bytes_total",
            "counter",
            "Bytes sent that count for leader.replication.throttled.rate",
            lambda: [Sample("", followers.throttle.bytes_total)],
        ),
        Family(
            "kafka_server_followerreplication_throttled_bytes_total",
            "counter",
            "Bytes fetched that count for follower.replication.throttled.rate",
            lambda: [Sample("", fetchers.throttle.bytes_total)],
        ),
    ]


def _in_sync(services: Services) -> list[Family]:
    prefix = "kafka_server_replicamanager_"
    return [
        _total(services, f"{prefix}isrshrinks_total", "Replicas fell out of sync", lambda each: each.isr_shrinks),
        _total(services, f"{prefix}isrexpands_total", "Replicas came into sync", lambda each: each.isr_expands),
        Family(
            f"{prefix}failedisrupdates_total",
            "counter",
            "Changes of in-sync replicas that were refused, or of which nobody knows whether they were written",
            lambda: [Sample("", services.isr_changes.failed_total)],
        ),
    ]


def _total(services: Services, name: str, help_text: str, value: Callable[[Partition], int]) -> Family:
    return Family(name, "counter", help_text, lambda: [Sample("", sum(map(value, services.replicas.partitions())))])
