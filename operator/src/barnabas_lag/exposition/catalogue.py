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
    """The origin of the metric: another exporter that has it, or Kafka's MBean or setting with the same value."""


PARTITION: Final = ("topic", "partition")
GROUP: Final = ("consumergroup",)
GROUP_TOPIC: Final = ("consumergroup", "topic")
GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

BROKERS: Final = Metric("kafka_brokers", "Number of brokers in the cluster.", ())
TOPIC_PARTITIONS: Final = Metric("kafka_topic_partitions", "Number of partitions of the topic.", ("topic",))
OFFSETS_RETENTION: Final = Metric(
    "kafka_offsets_retention_seconds",
    "Seconds for which brokers keep the offsets of a group without members; missing if no broker reports the setting.",
    (),
    "Kafka's setting: offsets.retention.minutes",
)

CURRENT_OFFSET: Final = Metric("kafka_topic_partition_current_offset", "Log end offset of the partition.", PARTITION)
OLDEST_OFFSET: Final = Metric("kafka_topic_partition_oldest_offset", "Log start offset of the partition.", PARTITION)
LEADER: Final = Metric(
    "kafka_topic_partition_leader", "Id of the broker that leads the partition; -1 if there is no leader.", PARTITION
)
IS_PREFERRED: Final = Metric(
    "kafka_topic_partition_leader_is_preferred", "1 if the preferred replica is the leader, else 0.", PARTITION
)
REPLICAS: Final = Metric("kafka_topic_partition_replicas", "Number of replicas of the partition.", PARTITION)
IN_SYNC: Final = Metric(
    "kafka_topic_partition_in_sync_replica", "Number of in-sync replicas of the partition.", PARTITION
)
UNDER_REPLICATED: Final = Metric(
    "kafka_topic_partition_under_replicated_partition",
    "1 if the partition has an out-of-sync replica, else 0.",
    PARTITION,
)
STABLE_OFFSET_LAG: Final = Metric(
    "kafka_cluster_partition_laststableoffsetlag",
    "Number of offsets from the last stable offset to the log end, which read_committed consumers cannot read yet.",
    PARTITION,
    "kafka.cluster:type=Partition,name=LastStableOffsetLag",
)

MEMBERS: Final = Metric(
    "kafka_consumergroup_members",
    "Number of members of the group; missing if the cluster does not describe the group.",
    GROUP,
)
STATE: Final = Metric(
    "kafka_consumergroup_state",
    "1 for the state of the group and its protocol: classic, share, or consumer (KIP-848).",
    ("consumergroup", "type", "state"),
    "kafka.server:type=group-coordinator-metrics: group-count, consumer-group-count",
)
OFFSETS_EXPIRE: Final = Metric(
    "kafka_consumergroup_offsets_expire_seconds",
    "Seconds until all offsets of a group without members have expired; missing while the group has members.",
    GROUP,
    "Kafka Minion: kafka_minion_group_topic_partition_expires_at",
)
GROUP_OFFSET: Final = Metric(
    "kafka_consumergroup_current_offset",
    "Offset that the group has committed for the partition; the start offset of a share group.",
    GROUP_PARTITION,
)
LAG: Final = Metric(
    "kafka_consumergroup_lag",
    "Log end offset minus the committed offset, or minus the log start offset if none is committed; of a share group "
    "the records that it has not finished (KIP-1226), missing if its coordinator does not know them.",
    GROUP_PARTITION,
)
LAG_SECONDS: Final = Metric(
    "kafka_consumergroup_lag_seconds",
    "Age in seconds of the first record that the group has not read, or a share group not acknowledged; 0 if there is "
    "none.",
    GROUP_PARTITION,
    "kafka-lag-exporter: kafka_consumergroup_group_lag_seconds",
)
RETENTION_PERCENT: Final = Metric(
    "kafka_consumergroup_retention_percent",
    "Percentage of the partition's records that the group has not read; at 100, retention next deletes unread records.",
    GROUP_PARTITION,
    "Klag: lag.retention_percent",
)
OFFSET_SUM: Final = Metric(
    "kafka_consumergroup_current_offset_sum",
    "Sum of the group's committed offsets over the topic's partitions.",
    GROUP_TOPIC,
)
LAG_SUM: Final = Metric(
    "kafka_consumergroup_lag_sum", "Sum of the group's lag over the topic's partitions.", GROUP_TOPIC
)
LAG_VELOCITY: Final = Metric(
    "kafka_consumergroup_lag_velocity",
    "Change of the lag in records per second; above 0, the group falls behind.",
    GROUP_TOPIC,
    "Klag: lag.velocity",
)
CATCH_UP: Final = Metric(
    "kafka_consumergroup_time_to_catch_up_seconds",
    "Seconds until the lag is 0 if it keeps falling as now; 0 without lag, +Inf if the lag does not fall.",
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
    "Largest lag of the group in a partition of the topic.",
    GROUP_TOPIC,
    f"{KAFKA_CONSUMER}records-lag-max",
)
RECORDS_LEAD_MIN: Final = Metric(
    "kafka_consumer_fetch_manager_records_lead_min",
    "Smallest distance of a committed offset from the log start offset; below 0, records were deleted unread.",
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
    STATE,
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
