"""The series with which each alert about transactions fires; `rule_cases` has the other alerts."""

from typing import Final

from monitoring.rule_cases import MAIN, ONE, TWO, Case

STABLE: Final = "barnabas_partition_last_stable_offset"
LAG: Final = "kafka_cluster_partition_laststableoffsetlag"
OVERDUE: Final = "barnabas_transaction_overdue_seconds"
REFUSED: Final = "barnabas_transaction_markers_refused_total"
FENCED: Final = 'error="INVALID_PRODUCER_EPOCH"'
PAY: Final = 'transactional_id="pay"'
FLIGHTS: Final = 'topic="flights",partition="0"'
WORKERS: Final = 'group="workers"'
TASKS: Final = f'{WORKERS},topic="tasks",partition="0"'
OF_GROUPS: Final = "kafka_server_sharegroupmetrics_"
CASES: Final = (
    Case("TransactionOverdue", {f"{OVERDUE}{{{ONE},{PAY}}}": "_x4 30 90+60x20"}, 6, 8, f"{MAIN},{PAY}"),
    Case(  # Another broker has led the partition since minute 20.
        "LastStableOffsetStandsStill",
        {
            f"{STABLE}{{{ONE},{FLIGHTS}}}": "0+5x9 50x10 stale",
            f"{STABLE}{{{TWO},{FLIGHTS}}}": "_x20 50x40",
            f"{LAG}{{{ONE},{FLIGHTS}}}": "1x9 1+10x10 stale",
            f"{LAG}{{{TWO},{FLIGHTS}}}": "_x20 111+10x40",
        },
        38,
        41,
        f"{MAIN},{FLIGHTS}",
    ),
    Case(
        "TransactionCoordinatorFailed",
        {f'barnabas_transaction_coordinator_partitions{{{ONE},state="failed"}}': "0x4 1x30"},
        9,
        11,
        ONE,
        "critical",
    ),
    Case(
        "ShareCoordinatorFailed",
        {f'barnabas_share_coordinator_partitions{{{ONE},state="failed"}}': "0x4 1x30"},
        9,
        11,
        ONE,
        "critical",
    ),
    Case(
        "ShareGroupHeldByOneRecord",
        {
            f"barnabas_share_oldest_unacknowledged_seconds{{{ONE},{TASKS}}}": "600x4 601x30",
            f"kafka_server_sharepartitionmetrics_inflightmessagecount{{{ONE},{TASKS}}}": "1000x40",
        },
        9,
        11,
        f"{MAIN},{TASKS}",
    ),
    Case(
        "ShareGroupDeadLetters",
        {f"{OF_GROUPS}deadletterqueue_recordcount_total{{{ONE},{WORKERS}}}": "0x4 1+1x60"},
        14,
        16,
        f"{MAIN},{WORKERS}",
    ),
    Case(
        "ShareGroupDeadLettersWait",
        {
            f"barnabas_share_records_waiting_for_dead_letters{{{ONE},{TASKS}}}": "0x4 7x60",
            f"{OF_GROUPS}deadletterqueue_failedproducerequests_total{{{ONE},{WORKERS}}}": "0x4 1+1x60",
        },
        14,
        16,
        f"{MAIN},{WORKERS}",
    ),
    Case(
        "ShareGroupWithoutDeadLetters",
        {f"barnabas_share_records_without_dead_letter_total{{{ONE},{WORKERS}}}": "0x4 1x60"},
        4,
        6,
        f"{MAIN},{WORKERS}",
    ),
    Case(
        "ShareGroupDeadLettersGoRound",
        {f"barnabas_share_dead_letters_in_circle_total{{{ONE},{WORKERS}}}": "0x4 1x60"},
        4,
        6,
        f"{MAIN},{WORKERS}",
    ),
    Case(
        "ShareGroupAcknowledgesNothing",
        {
            f'barnabas_share_deliveries_total{{{ONE},{WORKERS},delivery="again"}}': "0+2x60",
            f'{OF_GROUPS}recordacknowledgements_total{{{ONE},{WORKERS},ack_type="accept"}}': "0+2x5 10x60",
            f'{OF_GROUPS}recordacknowledgements_total{{{ONE},{WORKERS},ack_type="gap"}}': "0+2x60",
        },
        23,
        28,
        f"{MAIN},{WORKERS}",
    ),
    Case("TransactionMarkerRefused", {f"{REFUSED}{{{ONE},{FENCED}}}": "0x4 1x60"}, 4, 6, f"{ONE},{FENCED}"),
)
WELL: Final = {
    f"{OVERDUE}{{{ONE},{PAY}}}": "5x4 _x9 5 _x600",  # It was aborted within seconds, twice.
    f"{STABLE}{{{ONE},{FLIGHTS}}}": "0+7x600",
    f"{LAG}{{{ONE},{FLIGHTS}}}": "3x600",
    # Records are held back at a scrape now and then.
    f'{STABLE}{{{ONE},topic="bookings",partition="0"}}': f"{'7 stale _x7 ' * 60}",
    f'{LAG}{{{ONE},topic="bookings",partition="0"}}': f"{'1 0x8 ' * 60}",
    f'barnabas_transaction_coordinator_partitions{{{ONE},state="failed"}}': "0x600",
    f"{REFUSED}{{{ONE},{FENCED}}}": "2x600",
}
"""The series of a healthy cluster."""
