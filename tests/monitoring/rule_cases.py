"""The series with which each alert fires, as `promtool test rules` writes them: one value a minute."""

from collections.abc import Mapping
from typing import Final, NamedTuple

MAIN: Final = 'namespace="kafka",cluster="main"'
ONE: Final = f'{MAIN},broker="0",instance="10.0.0.1:9404"'
TWO: Final = f'{MAIN},broker="1",instance="10.0.0.2:9404"'
BILLING: Final = f'{MAIN},consumergroup="billing"'
READS: Final = f'{BILLING},topic="flights"'
EXPORTER: Final = f'{MAIN},instance="10.0.0.9:9308"'
HOT: Final = f'{BILLING},topic="flights",partition="0"'
OPERATOR: Final = 'namespace="barnabas",job="barnabas/barnabas-operator"'
RESOURCE: Final = f'{OPERATOR},resource_namespace="kafka",cluster="main"'
BILLS: Final = f'{RESOURCE},name="bills",consumergroup="billing"'
NIGHTLY: Final = 'resource_namespace="kafka",cluster="main",job_name="archive",schedule="nightly"'
NIGHTLY_RUN: Final = f'{NIGHTLY},name="main-nightly-1"'
STANDS_BY: Final = f'{BILLS},pod="stands-by"'
OFFLINE: Final = "kafka_controller_kafkacontroller_offlinepartitionscount"
CONTROLLER: Final = "kafka_controller_kafkacontroller_activecontrollercount"
FENCED: Final = "kafka_controller_kafkacontroller_fencedbrokercount"
LACKING: Final = "kafka_server_replicamanager_underreplicatedpartitions"
UNDER_MIN: Final = "kafka_server_replicamanager_underminisrpartitioncount"
IDLE: Final = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"


class Case(NamedTuple):
    """A case: at the minute `silent` no alert fires, at the minute `fires` this one does, and those in `others`."""

    alert: str
    series: Mapping[str, str]
    silent: int
    fires: int
    labels: str
    severity: str = "warning"
    others: tuple[tuple[str, str, str], ...] = ()
    """The name, labels and severity of each other alert."""


def disk(usable_percent: str) -> dict[str, str]:
    """Return the series of a disk of 100 bytes."""
    return {
        f'barnabas_log_dir_total_bytes{{{ONE},log_dir="/data-0"}}': "100x60",
        f'barnabas_log_dir_usable_bytes{{{ONE},log_dir="/data-0"}}': usable_percent,
    }


SERVED: Final = {
    f"up{{{ONE}}}": "1x60",
    f'barnabas_resource_state{{{RESOURCE},kind="Cluster",name="main",reason="Reconciled"}}': "1x4 stale",
}
"""The series of a served Cluster whose operator has stopped."""
FULL_DISK: Final = f'{ONE},log_dir="/data-0"'
CASES: Final = (
    Case(
        "OfflinePartitions",
        {f"{OFFLINE}{{{ONE}}}": "0x4 3x20", f"{OFFLINE}{{{TWO}}}": "0x4 3x20"},
        5,
        7,
        MAIN,
        "critical",
    ),
    Case("UnderMinIsrPartitionCount", {f"{UNDER_MIN}{{{ONE}}}": "0x4 3x20"}, 5, 7, MAIN, "critical"),
    Case("UnderReplicatedPartitions", {f"{LACKING}{{{ONE}}}": "0x4 3x20"}, 9, 11, MAIN),
    Case("RecordsLost", {f"barnabas_partitions_lacking_records{{{ONE}}}": "0x4 1x20"}, 4, 6, MAIN, "critical"),
    Case("BrokerDown", {f"{FENCED}{{{ONE}}}": "0x4 1x20"}, 9, 11, MAIN),
    Case(
        "NoBrokerAnswers",
        {f"up{{{ONE}}}": "0x20", f"up{{{TWO}}}": "1x4 0x1 _x20"},
        2,
        6,
        MAIN,
        "critical",
        (("ScrapeProblem", ONE, "warning"),),
    ),
    Case(  # Their pods are deleted, so Prometheus has no targets for them.
        "NoBrokerAnswers",
        {
            f"up{{{ONE}}}": "1x4 stale",
            f"up{{{TWO}}}": "1x3 0 stale",
            f'barnabas_resource_state{{{RESOURCE},kind="Cluster",name="main",reason="Reconciled"}}': "1x30",
        },
        5,
        7,
        MAIN,
        "critical",
    ),
    Case(
        "ScrapeProblem",
        {f"up{{{ONE}}}": "1x4 0x20", f"up{{{TWO}}}": "1x30", 'up{job="somebody-else"}': "0x20"},
        7,
        9,
        ONE,
    ),
    Case(  # This broker is the controller, and works.
        "ScrapeProblem",
        {
            f"up{{{ONE}}}": "1x4 0x20",
            f"up{{{TWO}}}": "1x30",
            f"{CONTROLLER}{{{ONE}}}": "1x4 stale",
            f"{CONTROLLER}{{{TWO}}}": "0x30",
        },
        7,
        9,
        ONE,
    ),
    Case(
        "AbnormalControllerState",
        {f"{CONTROLLER}{{{ONE}}}": "1x4 0x20", f"{CONTROLLER}{{{TWO}}}": "0x30", f"up{{{ONE}}}": "1x30"},
        7,
        9,
        MAIN,
        "critical",
    ),
    Case(
        "AbnormalControllerState",
        {f"{CONTROLLER}{{{ONE}}}": "1x30", f"{CONTROLLER}{{{TWO}}}": "0x4 1x20"},
        7,
        9,
        MAIN,
        "critical",
    ),
    Case(
        "OfflineLogDirectoryCount",
        {f"kafka_log_logmanager_offlinelogdirectorycount{{{ONE}}}": "0x4 1x20"},
        5,
        7,
        ONE,
        "critical",
    ),
    Case("KafkaRunningOutOfSpace", disk("15x4 14x30"), 9, 11, FULL_DISK),
    Case(
        "KafkaRunningOutOfSpace",
        disk("15x4 4x30"),
        5,
        11,
        FULL_DISK,
        "critical",
        (("KafkaRunningOutOfSpace", FULL_DISK, "warning"),),
    ),
    Case("BrokerOverloaded", {f"{IDLE}{{{ONE}}}": "0.1x4 0.09x20", f"{IDLE}{{{TWO}}}": "0.5x30"}, 14, 16, ONE),
    Case(
        "CompactionFails",
        {f'kafka_log_logcleanermanager_uncleanable_partitions_count{{{ONE},logDirectory="/data-0"}}': "0x4 1x30"},
        19,
        21,
        ONE,
    ),
    Case(
        "MetadataRestored",
        {f"barnabas_restored_documents_total{{{ONE}}}": "7x90 9x20", f"process_start_time_seconds{{{ONE}}}": "0x120"},
        90,
        92,
        MAIN,
    ),
    Case(
        "MetadataRestored",
        {
            f"barnabas_restored_documents_total{{{ONE}}}": "_x5 9x20",
            f"process_start_time_seconds{{{ONE}}}": "_x5 240x20",
        },
        4,
        6,
        MAIN,
    ),
    Case("LogsNotServed", {f'barnabas_stray_logs{{{ONE},log_dir="/data-0"}}': "0x4 2x30"}, 19, 21, ONE),
    Case("MetadataUnreadable", {f"barnabas_unreadable_documents{{{ONE}}}": "0x4 1x30"}, 9, 11, MAIN, "critical"),
    Case(
        "GroupCoordinatorFailed",
        {f'kafka_coordinator_group_num_partitions{{{ONE},state="failed"}}': "0x4 1x30"},
        9,
        11,
        ONE,
        "critical",
    ),
    Case("ConsumerGroupLag", {f"kafka_consumergroup_lag{{{HOT}}}": "1000x4 1001x20"}, 14, 16, BILLING),
    Case(
        "ConsumerGroupLag",
        {
            f"kafka_consumergroup_lag{{{HOT}}}": "9999x40",
            f"kafka_consumergroup_lag_seconds{{{HOT}}}": "60x14 61x20",
        },
        24,
        26,
        BILLING,
    ),
    Case(
        "ConsumerGroupStuck",
        {f"kafka_consumergroup_status{{{READS}}}": "1x4 5x20"},
        14,
        16,
        f'{BILLING},topic="flights"',
    ),
    Case(
        "ConsumerGroupStuck",
        {f"kafka_consumergroup_status{{{READS}}}": "6x4 4x20"},
        14,
        16,
        f'{BILLING},topic="flights"',
    ),
    Case(  # One of two exporters has just started, and sees the group go back.
        "ConsumerGroupStuck",
        {
            f'kafka_consumergroup_status{{{READS},instance="a"}}': "1x4 5x20",
            f'kafka_consumergroup_status{{{READS},instance="b"}}': "6x30",
        },
        14,
        16,
        f'{BILLING},topic="flights"',
    ),
    Case(
        "ConsumerGroupNearRetention",
        {f"kafka_consumergroup_retention_percent{{{HOT}}}": "80x4 81x20"},
        14,
        16,
        READS,
    ),
    Case(
        "ConsumerGroupLostRecords",
        {f"kafka_consumer_fetch_manager_records_lead_min{{{READS}}}": "0x4 -7 5x30"},
        4,
        19,
        READS,
        "critical",
    ),
    Case(  # No consumer reads the topic any more.
        "ConsumerGroupLostRecords",
        {
            f"kafka_consumer_fetch_manager_records_lead_min{{{READS}}}": "0x4 -7x30",
            f"kafka_consumergroup_status{{{READS}}}": "4x40",
        },
        4,
        6,
        READS,
    ),
    Case(
        "ConsumerGroupOffsetsExpireSoon",
        {
            f"kafka_consumergroup_offsets_expire_seconds{{{BILLING}}}": "86400x4 86399x20",
            f'kafka_consumergroup_offsets_expire_seconds{{{MAIN},consumergroup="audit"}}': "86401x30",
            f"kafka_offsets_retention_seconds{{{MAIN}}}": "604800x30",
        },
        9,
        11,
        BILLING,
    ),
    Case(  # One of two exporters of a cluster has just started.
        "ConsumerGroupOffsetsExpireSoon",
        {
            f'kafka_consumergroup_offsets_expire_seconds{{{BILLING},instance="a"}}': "600x4 500x20",
            f'kafka_consumergroup_offsets_expire_seconds{{{BILLING},instance="b"}}': "3600x30",
            f"kafka_offsets_retention_seconds{{{MAIN}}}": "3600x30",
        },
        9,
        11,
        BILLING,
    ),
    Case(
        "LagExporterStale",
        {
            f"barnabas_lag_exporter_round_age_seconds{{{EXPORTER}}}": "0x4 121x9",
            f"barnabas_lag_exporter_interval_seconds{{{EXPORTER}}}": "30x20",
        },
        5,
        7,
        EXPORTER,
    ),
    *(  # One exporter is declared by no Cluster, the other one is.
        Case("LagExporterGone", {f"barnabas_lag_exporter_up{{{EXPORTER}}}": "1x4 _x30", **declared}, 9, 16, MAIN)
        for declared in ({}, {f"barnabas_cluster_has_lag_exporter{{{RESOURCE}}}": "1x40"})
    ),
    Case(
        "LagExporterCutsOff",
        {f'barnabas_lag_exporter_cut_off{{{EXPORTER},option="--max-groups"}}': "0x4 7x30"},
        19,
        21,
        f'{EXPORTER},option="--max-groups"',
    ),
    Case(
        "ClusterNotReady",
        {
            f'barnabas_resource_state{{{RESOURCE},kind="Cluster",name="main",reason="Reconciled"}}': "1x4 stale",
            f'barnabas_resource_state{{{RESOURCE},kind="Cluster",name="main",reason="UnderMinIsr"}}': "_x5 0x4 stale",
            f'barnabas_resource_state{{{RESOURCE},kind="Cluster",name="main",reason="PartitionsOffline"}}': "_x10 0x30",
            f'barnabas_resource_state{{{RESOURCE},kind="Cluster",name="still",reason="Paused"}}': "0x40",
        },
        14,
        16,
        'resource_namespace="kafka",cluster="main",name="main"',
        "critical",
    ),
    Case(
        "TopicNotReady",
        {f'barnabas_resource_state{{{RESOURCE},kind="Topic",name="flights",reason="InvalidConfig"}}': "1x4 0x30"},
        14,
        16,
        'resource_namespace="kafka",cluster="main",name="flights"',
    ),
    *(
        Case(
            "ResourceNotReady",
            {
                f'barnabas_resource_state{{{RESOURCE},kind="{kind}",name="bills",reason="{reason}"}}': "1x4 0x30",
                f'barnabas_resource_state{{{RESOURCE},kind="{kind}",name="still",reason="Paused"}}': "0x40",
            },
            14,
            16,
            f'resource_namespace="kafka",cluster="main",kind="{kind}",name="bills"',
        )
        for kind, reason in (("User", "NoAuthority"), ("ConsumerGroup", "GroupTypeDiffers"))
    ),
    *(
        Case(
            alert,
            {
                f"barnabas_consumer_group_{metric}{{{BILLS}}}": f"{well}x4 {ill}x60",
                f"barnabas_consumer_group_{metric}{{{STANDS_BY}}}": f"{well}x4 {ill}x60",
            },
            silent,
            fires,
            'resource_namespace="kafka",cluster="main",name="bills",consumergroup="billing"',
        )
        for alert, metric, well, ill, silent, fires in (
            ("ConsumerGroupObjectiveMissed", "within_objective", 1, 0, 5, 7),
            ("ConsumerGroupResetWaits", "reset_pending", 0, 1, 34, 36),
            ("ConsumerGroupNotScaled", "scaling_active", 1, 0, 19, 21),
        )
    ),
    *(  # The acting operator and the one that stands by report the same.
        Case("MaintenanceFailed", {f"barnabas_maintenance_last_run_succeeded{{{run}}}": "1x4 0x20"}, 5, 7, NIGHTLY_RUN)
        for run in (f"{OPERATOR},{NIGHTLY_RUN}", f'{OPERATOR},pod="stands-by",{NIGHTLY_RUN}')
    ),
    Case(
        "MaintenanceNotRun",
        {
            f"barnabas_maintenance_last_success_timestamp_seconds{{{OPERATOR},{NIGHTLY}}}": "60x60",
            f"barnabas_maintenance_schedule_max_age_seconds{{{OPERATOR},{NIGHTLY}}}": "600x60",
        },
        16,
        18,
        NIGHTLY,
    ),
    Case(  # The schedule is this old, and has never succeeded.
        "MaintenanceNotRun",
        {
            f"barnabas_maintenance_schedule_created_timestamp_seconds{{{OPERATOR},{NIGHTLY}}}": "60x60",
            f"barnabas_maintenance_schedule_max_age_seconds{{{OPERATOR},{NIGHTLY}}}": "600x60",
        },
        16,
        18,
        NIGHTLY,
    ),
    Case(
        "MaintenanceStalled",
        {
            f"barnabas_maintenance_run_last_commit_timestamp_seconds{{{OPERATOR},{NIGHTLY_RUN}}}": "60x60",
            f"barnabas_maintenance_run_commit_max_age_seconds{{{OPERATOR},{NIGHTLY_RUN}}}": "600x60",
            f"barnabas_maintenance_run_records_behind{{{OPERATOR},{NIGHTLY_RUN}}}": "7x60",
        },
        16,
        18,
        NIGHTLY_RUN,
    ),
    Case(
        "MaintenanceWithoutDriver",
        {f"barnabas_maintenance_run_driver_running{{{OPERATOR},{NIGHTLY_RUN}}}": "1x4 0x60"},
        19,
        21,
        NIGHTLY_RUN,
    ),
    Case("OperatorErrors", {f"barnabas_reconciliations_failed_total{{{RESOURCE}}}": "0x4 0+1x40"}, 19, 22, RESOURCE),
    Case(
        "OperatorWatchErrors",
        {f'barnabas_watch_errors_total{{{OPERATOR},kind="Topic"}}': "1x14 2x10"},
        14,
        16,
        f'{OPERATOR},kind="Topic"',
    ),
    Case(
        "OperatorWatchErrors",
        {f'barnabas_watch_errors_total{{{OPERATOR},kind="Topic"}}': "_x5 1x10"},
        4,
        6,
        f'{OPERATOR},kind="Topic"',
    ),
    Case(
        "NoOperatorActs",
        {f"barnabas_operator_is_leader{{{OPERATOR}}}": "1x4 0x20", **SERVED},
        9,
        11,
        'namespace="barnabas"',
        "critical",
    ),
    Case(
        "NoOperatorActs",
        {f"barnabas_operator_is_leader{{{OPERATOR}}}": "1x4 _x30", **SERVED},
        9,
        16,
        'namespace="barnabas"',
        "critical",
    ),
    Case(
        "SeveralOperatorsAct",
        {
            f'barnabas_operator_is_leader{{{OPERATOR},pod="a"}}': "1x20",
            f'barnabas_operator_is_leader{{{OPERATOR},pod="b"}}': "0x4 1x20",
        },
        6,
        8,
        OPERATOR,
        "critical",
    ),
)
