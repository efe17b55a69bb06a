"""The metrics of replication: the lag of followers, the traffic between brokers, and the changes of the ISR."""

from collections.abc import Iterator

from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerSessions
from barnabas_broker.replication.leader_replica import IsrChanges
from barnabas_broker.server.metrics.exposition import Family, Sample, single
from barnabas_broker.server.metrics.hosted import Hosted, Totals


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
