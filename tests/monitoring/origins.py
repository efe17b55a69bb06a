"""The origin of each metric: the corresponding MBean of Kafka or metric of kafka_exporter.

Metrics without an origin are our own. docs/reference/metrics.md lists the origins, and a test fails if a metric whose
name begins with `kafka_` has no origin.
"""

from collections.abc import Mapping
from typing import Final

KAFKA_EXPORTER: Final = "kafka_exporter"
_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_FETCHERS: Final = "kafka.server:type=ReplicaFetcherManager,clientId=Replica,name="
_REQUESTS: Final = "kafka.network:type=RequestMetrics,name="
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_PARTITION: Final = "kafka.cluster:type=Partition,name="
_LOG: Final = "kafka.log:type=Log,name="
_CLEANER: Final = "kafka.log:type=LogCleaner,name="
_CLEANER_MANAGER: Final = "kafka.log:type=LogCleanerManager,name="
_SHARE_GROUPS: Final = "kafka.server:type=ShareGroupMetrics,name="
_SHARE_PARTITIONS: Final = "kafka.server:type=SharePartitionMetrics,name="
_GROUPS: Final = "kafka.server:type=group-coordinator-metrics"

_TRAFFIC: Final = {
    "kafka_server_brokertopicmetrics_messagesin_total": f"{_TOPICS}MessagesInPerSec",
    "kafka_server_brokertopicmetrics_bytesin_total": f"{_TOPICS}BytesInPerSec",
    "kafka_server_brokertopicmetrics_bytesout_total": f"{_TOPICS}BytesOutPerSec",
    "kafka_server_brokertopicmetrics_totalproducerequests_total": f"{_TOPICS}TotalProduceRequestsPerSec",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": f"{_TOPICS}TotalFetchRequestsPerSec",
    "kafka_server_brokertopicmetrics_replicationbytesin_total": f"{_TOPICS}ReplicationBytesInPerSec",
    "kafka_server_brokertopicmetrics_replicationbytesout_total": f"{_TOPICS}ReplicationBytesOutPerSec",
    "kafka_network_requestmetrics_requests_total": f"{_REQUESTS}RequestsPerSec",
    "kafka_network_requestmetrics_localtime_seconds_total": f"{_REQUESTS}LocalTimeMs",
    "kafka_network_requestmetrics_totaltimems": f"{_REQUESTS}TotalTimeMs",
    "kafka_server_socketserver_connectioncount": "kafka.server:type=socket-server-metrics: connection-count",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": (
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"
    ),
    "kafka_network_socketserver_networkprocessoravgidle_percent": (
        "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"
    ),
}
_REPLICATION: Final = {
    "kafka_server_replicamanager_partitioncount": f"{_REPLICAS}PartitionCount",
    "kafka_server_replicamanager_leadercount": f"{_REPLICAS}LeaderCount",
    "kafka_server_replicamanager_underreplicatedpartitions": f"{_REPLICAS}UnderReplicatedPartitions",
    "kafka_server_replicamanager_underminisrpartitioncount": f"{_REPLICAS}UnderMinIsrPartitionCount",
    "kafka_server_replicamanager_atminisrpartitioncount": f"{_REPLICAS}AtMinIsrPartitionCount",
    "kafka_server_replicamanager_offlinereplicacount": f"{_REPLICAS}OfflineReplicaCount",
    "kafka_server_replicamanager_produceridcount": f"{_REPLICAS}ProducerIdCount",
    "kafka_server_replicamanager_reassigningpartitions": f"{_REPLICAS}ReassigningPartitions",
    "kafka_server_replicamanager_isrshrinks_total": f"{_REPLICAS}IsrShrinksPerSec",
    "kafka_server_replicamanager_isrexpands_total": f"{_REPLICAS}IsrExpandsPerSec",
    "kafka_server_replicamanager_failedisrupdates_total": f"{_REPLICAS}FailedIsrUpdatesPerSec",
    "kafka_server_fetcherlagmetrics_consumerlag": "kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
    "kafka_server_replicafetchermanager_maxlag": f"{_FETCHERS}MaxLag",
    "kafka_server_replicafetchermanager_failedpartitionscount": f"{_FETCHERS}FailedPartitionsCount",
    "kafka_server_leaderreplication_throttled_bytes_total": "kafka.server:type=LeaderReplication: byte-rate",
    "kafka_server_followerreplication_throttled_bytes_total": "kafka.server:type=FollowerReplication: byte-rate",
    "kafka_cluster_partition_replicascount": f"{_PARTITION}ReplicasCount",
    "kafka_cluster_partition_insyncreplicascount": f"{_PARTITION}InSyncReplicasCount",
    "kafka_cluster_partition_underreplicated": f"{_PARTITION}UnderReplicated",
    "kafka_cluster_partition_underminisr": f"{_PARTITION}UnderMinIsr",
    "kafka_cluster_partition_atminisr": f"{_PARTITION}AtMinIsr",
    "kafka_cluster_partition_laststableoffsetlag": f"{_PARTITION}LastStableOffsetLag",
    "kafka_server_replicamanager_partitionswithlatetransactionscount": (
        f"{_REPLICAS}PartitionsWithLateTransactionsCount"
    ),
}
_CONTROL: Final = {
    "kafka_controller_kafkacontroller_activecontrollercount": f"{_CONTROLLER}ActiveControllerCount",
    "kafka_controller_kafkacontroller_activebrokercount": f"{_CONTROLLER}ActiveBrokerCount",
    "kafka_controller_kafkacontroller_fencedbrokercount": f"{_CONTROLLER}FencedBrokerCount",
    "kafka_controller_kafkacontroller_offlinepartitionscount": f"{_CONTROLLER}OfflinePartitionsCount",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": f"{_CONTROLLER}PreferredReplicaImbalanceCount",
    "kafka_controller_controllerstats_leaderelections_total": (
        "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs: this MBean exists only up to Kafka 3"
    ),
}
_QUOTAS: Final = {
    "kafka_server_produce_throttle_time_ms_total": "kafka.server:type=Produce: throttle-time",
    "kafka_server_fetch_throttle_time_ms_total": "kafka.server:type=Fetch: throttle-time",
    "kafka_server_request_throttle_time_ms_total": "kafka.server:type=Request: throttle-time",
    "kafka_server_controllermutation_throttle_time_ms_total": "kafka.server:type=ControllerMutation: throttle-time",
}
_LOGS: Final = {
    "kafka_log_logmanager_offlinelogdirectorycount": "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    "kafka_log_log_size": f"{_LOG}Size",
    "kafka_log_log_numlogsegments": f"{_LOG}NumLogSegments",
    "kafka_log_log_logstartoffset": f"{_LOG}LogStartOffset",
    "kafka_log_log_logendoffset": f"{_LOG}LogEndOffset",
    "kafka_log_logcleanermanager_max_dirty_percent": f"{_CLEANER_MANAGER}max-dirty-percent",
    "kafka_log_logcleanermanager_time_since_last_run_ms": f"{_CLEANER_MANAGER}time-since-last-run-ms",
    "kafka_log_logcleanermanager_uncleanable_partitions_count": f"{_CLEANER_MANAGER}uncleanable-partitions-count",
    "kafka_log_logcleanermanager_uncleanable_bytes": f"{_CLEANER_MANAGER}uncleanable-bytes",
    "kafka_log_logcleaner_cleaner_recopy_percent": f"{_CLEANER}cleaner-recopy-percent",
    "kafka_log_logcleaner_max_clean_time_secs": f"{_CLEANER}max-clean-time-secs",
    "kafka_log_logcleaner_max_buffer_utilization_percent": f"{_CLEANER}max-buffer-utilization-percent",
}
_OF_GROUPS: Final = {
    "kafka_coordinator_group_offset_commits_total": f"{_GROUPS}: offset-commit-count",
    "kafka_coordinator_group_offset_expirations_total": f"{_GROUPS}: offset-expiration-count",
    "kafka_coordinator_group_offset_deletions_total": f"{_GROUPS}: offset-deletion-count",
    "kafka_coordinator_group_completed_rebalances_total": f"{_GROUPS}: group-completed-rebalance-count",
    "kafka_coordinator_group_consumer_group_rebalances_total": f"{_GROUPS}: consumer-group-rebalance-count",
    "kafka_coordinator_group_num_partitions": f"{_GROUPS}: num-partitions",
    "kafka_coordinator_share_writes_total": "kafka.server:type=share-coordinator-metrics: write-total",
    "kafka_coordinator_share_last_pruned_offset": "kafka.server:type=share-coordinator-metrics: last-pruned-offset",
}
_OF_SHARE_GROUPS: Final = {
    "kafka_server_sharegroupmetrics_recordacknowledgements_total": f"{_SHARE_GROUPS}RecordAcknowledgementsPerSec",
    "kafka_server_sharegroupmetrics_deadletterqueue_recordcount_total": f"{_SHARE_GROUPS}DeadLetterQueueRecordCount",
    "kafka_server_sharegroupmetrics_deadletterqueue_failedproducerequests_total": (
        f"{_SHARE_GROUPS}DeadLetterQueueFailedProduceRequestsPerSec"
    ),
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total": (
        f"{_SHARE_PARTITIONS}AcquisitionLockTimeoutPerSec"
    ),
    "kafka_server_sharepartitionmetrics_inflightmessagecount": f"{_SHARE_PARTITIONS}InFlightMessageCount",
}
_AUTHENTICATION: Final = {
    f"kafka_server_socket_server_metrics_{name}": f"kafka.server:type=socket-server-metrics: {attribute}"
    for name, attribute in (
        ("successful_authentication_total", "successful-authentication-total"),
        ("successful_reauthentication_total", "successful-reauthentication-total"),
        ("failed_authentication_total", "failed-authentication-total"),
        ("expired_connections_killed_total", "expired-connections-killed-count"),
    )
}
_OF_EXPORTERS: Final = {
    f"kafka_{name}": KAFKA_EXPORTER
    for name in (
        "consumergroup_current_offset",
        "consumergroup_lag",
        "consumergroup_current_offset_sum",
        "consumergroup_lag_sum",
        "consumergroup_members",
        "topic_partition_current_offset",
        "topic_partition_oldest_offset",
        "topic_partition_leader",
        "topic_partition_leader_is_preferred",
        "topic_partition_replicas",
        "topic_partition_in_sync_replica",
        "topic_partition_under_replicated_partition",
    )
}

ORIGINS: Final[Mapping[str, str]] = {
    **_TRAFFIC,
    **_REPLICATION,
    **_CONTROL,
    **_QUOTAS,
    **_LOGS,
    **_OF_GROUPS,
    **_OF_SHARE_GROUPS,
    **_AUTHENTICATION,
    **_OF_EXPORTERS,
}
"""The MBean of Kafka, or the metric of kafka_exporter, that each metric corresponds to, by metric name.

The text after `: ` is an attribute of the MBean, or says which versions of Kafka have the MBean.
"""
