"""Every metric that is told of a cluster: names and labels of kafka_exporter where it has one, help and labels here."""

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """A gauge."""

    name: str
    text: str
    labels: tuple[str, ...]


PARTITION: Final = ("topic", "partition")
GROUP: Final = ("consumergroup",)
GROUP_TOPIC: Final = ("consumergroup", "topic")
GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

BROKERS: Final = Metric("kafka_brokers", "Brokers in the cluster.", ())
TOPIC_PARTITIONS: Final = Metric("kafka_topic_partitions", "Partitions of the topic.", ("topic",))

CURRENT_OFFSET: Final = Metric("kafka_topic_partition_current_offset", "Where the log ends.", PARTITION)
OLDEST_OFFSET: Final = Metric("kafka_topic_partition_oldest_offset", "Where the log begins.", PARTITION)
LEADER: Final = Metric("kafka_topic_partition_leader", "Id of the leader; -1 where nobody leads.", PARTITION)
IS_PREFERRED: Final = Metric(
    "kafka_topic_partition_leader_is_preferred", "1 where the preferred replica leads.", PARTITION
)
REPLICAS: Final = Metric("kafka_topic_partition_replicas", "Replicas.", PARTITION)
IN_SYNC: Final = Metric("kafka_topic_partition_in_sync_replica", "Replicas in sync.", PARTITION)
UNDER_REPLICATED: Final = Metric(
    "kafka_topic_partition_under_replicated_partition", "1 where a replica is not in sync.", PARTITION
)

MEMBERS: Final = Metric(
    "kafka_consumergroup_members", "Members; not there for groups of which the cluster does not tell.", GROUP
)
GROUP_OFFSET: Final = Metric("kafka_consumergroup_current_offset", "The committed offset.", GROUP_PARTITION)
LAG: Final = Metric(
    "kafka_consumergroup_lag", "Offsets between the committed one and the end of the log.", GROUP_PARTITION
)
LAG_SECONDS: Final = Metric(
    "kafka_consumergroup_lag_seconds",
    "How long ago the next record to be read was written; 0 where nothing is left to read.",
    GROUP_PARTITION,
)
RETENTION_PERCENT: Final = Metric(
    "kafka_consumergroup_retention_percent",
    "How much of what the partition keeps is still to be read; at 100 records are deleted unread.",
    GROUP_PARTITION,
)
OFFSET_SUM: Final = Metric("kafka_consumergroup_current_offset_sum", "Committed offsets, summed.", GROUP_TOPIC)
LAG_SUM: Final = Metric("kafka_consumergroup_lag_sum", "Lag, summed over the topic's partitions.", GROUP_TOPIC)
LAG_VELOCITY: Final = Metric(
    "kafka_consumergroup_lag_velocity",
    "How fast the lag changes, in records a second; above 0 the group falls behind.",
    GROUP_TOPIC,
)
CATCH_UP: Final = Metric(
    "kafka_consumergroup_time_to_catch_up_seconds",
    "Seconds until all is read at this pace; 0 where it is, +Inf where the lag does not get less.",
    GROUP_TOPIC,
)
STATUS: Final = Metric(
    "kafka_consumergroup_status",
    "Burrow's status of the worst partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND.",
    GROUP_TOPIC,
)
RECORDS_LAG_MAX: Final = Metric(
    "kafka_consumer_fetch_manager_records_lag_max", "The largest lag of the topic's partitions.", GROUP_TOPIC
)
RECORDS_LEAD_MIN: Final = Metric(
    "kafka_consumer_fetch_manager_records_lead_min",
    "Offsets between the oldest record and the committed offset, where they are fewest; below 0, so many were deleted"
    " unread.",
    GROUP_TOPIC,
)

CATALOGUE: Final = (
    BROKERS,
    TOPIC_PARTITIONS,
    CURRENT_OFFSET,
    OLDEST_OFFSET,
    LEADER,
    IS_PREFERRED,
    REPLICAS,
    IN_SYNC,
    UNDER_REPLICATED,
    MEMBERS,
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
