"""The catalogue of the metrics about a cluster, with the names and labels of kafka_exporter where it has them."""

from typing import Final, NamedTuple

KAFKA_EXPORTER: Final = "kafka_exporter"
KAFKA_CONSUMER: Final = "kafka.consumer:type=consumer-fetch-manager-metrics: "


class Metric(NamedTuple):
    """The name, meaning and labels of a gauge."""

    name: str
    text: str
    labels: tuple[str, ...]
    origin: str = KAFKA_EXPORTER
    """The other exporter that has the metric, or Kafka's MBean and its attribute."""


PARTITION: Final = ("topic", "partition")
GROUP: Final = ("consumergroup",)
GROUP_TOPIC: Final = ("consumergroup", "topic")
GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

BROKERS: Final = Metric("kafka_brokers", "Brokers in the cluster.", ())
TOPIC_PARTITIONS: Final = Metric("kafka_topic_partitions", "Partitions of the topic.", ("topic",))
OFFSETS_RETENTION: Final = Metric(
    "kafka_offsets_retention_seconds",
    "Seconds for which brokers keep the offsets of a group without members; missing if no broker reports it.",
    (),
    "Kafka's setting: offsets.retention.minutes",
)

CURRENT_OFFSET: Final = Metric("kafka_topic_partition_current_offset", "Offset at which the log ends.", PARTITION)
OLDEST_OFFSET: Final = Metric("kafka_topic_partition_oldest_offset", "Offset at which the log begins.", PARTITION)
LEADER: Final = Metric("kafka_topic_partition_leader", "Id of the leader; -1 if nobody leads.", PARTITION)
IS_PREFERRED: Final = Metric(
    "kafka_topic_partition_leader_is_preferred", "1 if the preferred replica leads, else 0.", PARTITION
)
REPLICAS: Final = Metric("kafka_topic_partition_replicas", "Replicas of the partition.", PARTITION)
IN_SYNC: Final = Metric("kafka_topic_partition_in_sync_replica", "Replicas in sync.", PARTITION)
UNDER_REPLICATED: Final = Metric(
    "kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync, else 0.", PARTITION
)
STABLE_OFFSET_LAG: Final = Metric(
    "kafka_cluster_partition_laststableoffsetlag",
    "Offsets from the last stable offset to the end of the log, which read_committed consumers do not get yet.",
    PARTITION,
    "kafka.cluster:type=Partition,name=LastStableOffsetLag",
)

MEMBERS: Final = Metric(
    "kafka_consumergroup_members",
    "Members of the group; missing for groups that the cluster does not describe.",
    GROUP,
)
OFFSETS_EXPIRE: Final = Metric(
    "kafka_consumergroup_offsets_expire_seconds",
    "The longest time in seconds until the offsets of a group without members expire; missing while it has members.",
    GROUP,
    "Kafka Minion: kafka_minion_group_topic_partition_expires_at",
)
GROUP_OFFSET: Final = Metric(
    "kafka_consumergroup_current_offset", "Offset that the group has committed.", GROUP_PARTITION
)
LAG: Final = Metric(
    "kafka_consumergroup_lag",
    "Lag: the log end offset minus the committed offset, or minus the log start offset if there is none.",
    GROUP_PARTITION,
)
LAG_SECONDS: Final = Metric(
    "kafka_consumergroup_lag_seconds",
    "Seconds since the next unread record was written; 0 if all records are read.",
    GROUP_PARTITION,
    "kafka-lag-exporter: kafka_consumergroup_group_lag_seconds",
)
RETENTION_PERCENT: Final = Metric(
    "kafka_consumergroup_retention_percent",
    "Percentage of the partition's kept records that the group has not read; at 100 unread records are deleted.",
    GROUP_PARTITION,
    "Klag: lag.retention_percent",
)
OFFSET_SUM: Final = Metric("kafka_consumergroup_current_offset_sum", "Committed offsets, summed.", GROUP_TOPIC)
LAG_SUM: Final = Metric("kafka_consumergroup_lag_sum", "Lag, summed over the topic's partitions.", GROUP_TOPIC)
LAG_VELOCITY: Final = Metric(
    "kafka_consumergroup_lag_velocity",
    "How fast the lag changes, in records a second; above 0 the group falls behind.",
    GROUP_TOPIC,
    "Klag: lag.velocity",
)
CATCH_UP: Final = Metric(
    "kafka_consumergroup_time_to_catch_up_seconds",
    "Seconds until all records are read at this rate; 0 without lag, +Inf if the lag does not fall.",
    GROUP_TOPIC,
    "Klag: lag.time_to_close_seconds",
)
STATUS: Final = Metric(
    "kafka_consumergroup_status",
    "Burrow's status of the worst partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND.",
    GROUP_TOPIC,
    "Burrow: the status of a partition",
)
RECORDS_LAG_MAX: Final = Metric(
    "kafka_consumer_fetch_manager_records_lag_max",
    "The largest lag of the topic's partitions.",
    GROUP_TOPIC,
    f"{KAFKA_CONSUMER}records-lag-max",
)
RECORDS_LEAD_MIN: Final = Metric(
    "kafka_consumer_fetch_manager_records_lead_min",
    "The smallest distance of a committed offset from the log start offset; below 0, so many offsets were deleted"
    " unread.",
    GROUP_TOPIC,
    f"{KAFKA_CONSUMER}records-lead-min",
)

CATALOGUE: Final = (
    BROKERS,
    OFFSETS_RETENTION,
    TOPIC_PARTITIONS,
    CURRENT_OFFSET,
    OLDEST_OFFSET,
    LEADER,
    IS_PREFERRED,
    REPLICAS,
    IN_SYNC,
    UNDER_REPLICATED,
    STABLE_OFFSET_LAG,
    MEMBERS,
    OFFSETS_EXPIRE,
    GROUP_OFFSET,
    LAG,
    LAG_SECONDS,
    RETENTION_PERCENT,
    OFFSET_SUM,
    LAG_SUM,
    LAG_VELOCITY,
    CATCH_UP,
    STATUS,
    RECORDS_LAG_MAX,
    RECORDS_LEAD_MIN,
)
