"""The series of a healthy cluster, and of one whose brokers restart: no alert fires."""

from typing import Final

from monitoring import certificate_rule_cases
from monitoring.rule_cases import (
    BILLING,
    BILLS,
    CONTROLLER,
    EXPORTER,
    FENCED,
    HOT,
    IDLE,
    LACKING,
    MAIN,
    NIGHTLY,
    NIGHTLY_RUN,
    OFFLINE,
    ONE,
    OPERATOR,
    READS,
    RESOURCE,
    TWO,
    UNDER_MIN,
    disk,
)
from monitoring.transaction_rule_cases import WELL

MINUTES_OF_A_WEEK: Final = 600
"""The minutes that stand for a week: longer than every window of the rules."""
HEALTHY: Final = {
    f"{OFFLINE}{{{ONE}}}": "0x600",
    f"{CONTROLLER}{{{ONE}}}": "1x600",
    f"{CONTROLLER}{{{TWO}}}": "0x600",
    f"{FENCED}{{{ONE}}}": "0x600",
    f"{LACKING}{{{ONE}}}": "0x600",
    f"{UNDER_MIN}{{{ONE}}}": "0x600",
    f"barnabas_partitions_lacking_records{{{ONE}}}": "0x600",
    **WELL,
    **certificate_rule_cases.WELL,
    f"up{{{ONE}}}": "1x600",
    'up{namespace="kafka",cluster="of-yesterday",broker="0"}': "1x90 stale",  # A user has deleted this Cluster.
    f"kafka_log_logmanager_offlinelogdirectorycount{{{ONE}}}": "0x600",
    **disk("40x600"),
    f"{IDLE}{{{ONE}}}": "0.7x600",
    f"barnabas_restored_documents_total{{{ONE}}}": "0x600",
    f"process_start_time_seconds{{{ONE}}}": "0x600",
    # There are always records to read, and they are read within seconds.
    f"kafka_consumergroup_lag{{{HOT}}}": "20000x600",
    f"kafka_consumergroup_lag_seconds{{{HOT}}}": "3x600",
    f"kafka_consumergroup_status{{{READS}}}": "1x600",
    f"kafka_consumergroup_retention_percent{{{HOT}}}": "2x600",
    f"kafka_consumer_fetch_manager_records_lead_min{{{READS}}}": "5000x600",
    # No consumer has read it for days, so its records were lost long ago.
    f'kafka_consumer_fetch_manager_records_lead_min{{{BILLING},topic="lost"}}': "-7x600",
    f"kafka_offsets_retention_seconds{{{MAIN}}}": "604800x600",
    f"kafka_consumergroup_offsets_expire_seconds{{{BILLING}}}": "_x9 604800-60x120 stale",  # It was empty for 2 h.
    f'kafka_consumergroup_offsets_expire_seconds{{{MAIN},consumergroup="console-consumer-52017"}}': "60x600",
    f"barnabas_lag_exporter_round_age_seconds{{{EXPORTER}}}": "15x600",
    f"barnabas_lag_exporter_interval_seconds{{{EXPORTER}}}": "15x600",
    # This exporter reads a large cluster every five minutes.
    f'barnabas_lag_exporter_round_age_seconds{{{EXPORTER},job="large"}}': "299x600",
    f'barnabas_lag_exporter_interval_seconds{{{EXPORTER},job="large"}}': "300x600",
    f"barnabas_lag_exporter_up{{{EXPORTER}}}": "1x600",
    # Of two Clusters, one no longer declares an exporter, and the other was deleted.
    'barnabas_lag_exporter_up{namespace="kafka",cluster="plain"}': "1x90 stale",
    f'barnabas_cluster_has_lag_exporter{{{OPERATOR},resource_namespace="kafka",cluster="plain"}}': "1x90 0x600",
    'barnabas_lag_exporter_up{namespace="kafka",cluster="of-yesterday"}': "1x90 stale",
    f'barnabas_cluster_has_lag_exporter{{{OPERATOR},resource_namespace="kafka",cluster="of-yesterday"}}': "1x90 stale",
    f'barnabas_lag_exporter_cut_off{{{EXPORTER},option="--max-groups"}}': "0x600",
    f'barnabas_resource_state{{{RESOURCE},kind="Cluster",name="main",reason="Reconciled"}}': "1x600",
    f'barnabas_resource_state{{{RESOURCE},kind="Topic",name="flights",reason="Reconciled"}}': "1x600",
    f"barnabas_consumer_group_within_objective{{{BILLS}}}": "1x600",
    f"barnabas_consumer_group_reset_pending{{{BILLS}}}": "0x600",
    f"barnabas_consumer_group_scaling_active{{{BILLS}}}": "1x600",
    f"barnabas_maintenance_last_run_succeeded{{{OPERATOR},{NIGHTLY_RUN}}}": "1x600",
    f"barnabas_maintenance_last_success_timestamp_seconds{{{OPERATOR},{NIGHTLY}}}": "0+60x600",
    f"barnabas_maintenance_schedule_created_timestamp_seconds{{{OPERATOR},{NIGHTLY}}}": "0x600",
    f"barnabas_maintenance_schedule_max_age_seconds{{{OPERATOR},{NIGHTLY}}}": "600x600",
    f"barnabas_reconciliations_failed_total{{{RESOURCE}}}": "2x600",
    f'barnabas_watch_errors_total{{{OPERATOR},kind="Topic"}}': "0x600",
    # This group is up to date, though it has not committed for hours: no records were written.
    f"barnabas_maintenance_run_last_commit_timestamp_seconds{{{OPERATOR},{NIGHTLY_RUN}}}": "60x600",
    f"barnabas_maintenance_run_commit_max_age_seconds{{{OPERATOR},{NIGHTLY_RUN}}}": "600x600",
    f"barnabas_maintenance_run_records_behind{{{OPERATOR},{NIGHTLY_RUN}}}": "0x600",
    f"barnabas_maintenance_run_driver_running{{{OPERATOR},{NIGHTLY_RUN}}}": "1x90 0x14 1x500",
    # This operator was uninstalled, and another one manages its Cluster now.
    'barnabas_operator_is_leader{namespace="kafka"}': "1x90 stale",
    f'barnabas_resource_state{{{MAIN},kind="Cluster",resource_namespace="kafka"}}': "1x90 stale",
    # This operator was uninstalled with all its resources.
    'barnabas_operator_is_leader{namespace="removed"}': "1x90 stale",
    'barnabas_resource_state{namespace="removed",kind="Cluster",resource_namespace="old",cluster="old"}': "1x90 stale",
    f'barnabas_operator_is_leader{{{OPERATOR},pod="a"}}': "1x600",
    f'barnabas_operator_is_leader{{{OPERATOR},pod="b"}}': "0x600",
}
ROLL: Final = {
    # Each broker is down for a minute; the others lead meanwhile, and it catches up within another minute.
    f"up{{{ONE}}}": "1x10 0 1x20",
    f"up{{{TWO}}}": "1x14 0 1x16",
    f"{FENCED}{{{ONE}}}": "0x10 1 0x3 1 0x20",
    f"{FENCED}{{{TWO}}}": "0x10 1 0x3 1 0x20",
    f"{LACKING}{{{ONE}}}": "0x14 6x1 0x20",
    f"{LACKING}{{{TWO}}}": "0x10 6x1 0x20",
    f"{CONTROLLER}{{{ONE}}}": "1x10 0x20",
    f"{CONTROLLER}{{{TWO}}}": "0x10 1x20",
    f'barnabas_resource_state{{{RESOURCE},kind="Cluster",name="main",reason="Reconciled"}}': "1x40",
}
