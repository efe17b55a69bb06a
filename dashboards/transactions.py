"""The row about transactions in the dashboard of brokers: how many end, which are overdue, what they hold back."""

from typing import Final

from dashboards.panels import RED, YELLOW, Panel, Query, graph, number

CLUSTER: Final = "namespace, cluster"
RATE: Final = "[$__rate_interval]"


def panels(chosen: str) -> list[Panel]:
    """Return the row's panels; `chosen` selects clusters, because a transaction spans many brokers."""
    overdue = f"max by ({CLUSTER}, transactional_id) (barnabas_transaction_overdue_seconds{{{chosen}}})"
    held_back = f"max by ({CLUSTER}, topic, partition) (kafka_cluster_partition_laststableoffsetlag{{{chosen}}})"
    states = f'sum by ({CLUSTER}, state) (barnabas_transactional_ids{{{chosen},state!~"Empty|Complete.*"}})'
    return [
        *_numbers(chosen, overdue, held_back),
        graph(
            "Undecided transactions",
            "Transactional ids whose transaction is open, or whose markers are being written.",
            "short",
            Query(states, "{{cluster}} {{state}}"),
        ),
        graph(
            "Ended",
            "Transactions a second that have ended in all their partitions, by result.",
            "short",
            Query(_ended(chosen), "{{cluster}} {{result}}"),
        ),
        graph(
            "Held back",
            "Offsets that an open transaction keeps from consumers of committed records: the ten largest.",
            "short",
            Query(f"topk(10, {held_back})", "{{cluster}} {{topic}}-{{partition}}"),
        ),
    ]


def _numbers(chosen: str, overdue: str, held_back: str) -> list[Panel]:
    late = f"sum(kafka_server_replicamanager_partitionswithlatetransactionscount{{{chosen}}})"
    return [
        number(
            "Hang",
            "Partitions with a transaction that no coordinator will end: barnabas status --transactions names them.",
            late,
            "short",
            (1, RED),
            span=8,
        ),
        number(
            "Overdue transactions",
            "Transactions whose timeout is over and that have not ended in all their partitions.",
            f"count({overdue}) or vector(0)",
            "short",
            (1, YELLOW),
            span=8,
        ),
        number(
            "Partitions held back",
            "Partitions where consumers of committed records do not get all of them now; for a moment that is usual.",
            f"count({held_back} > 0) or vector(0)",
            span=8,
        ),
    ]


def _ended(chosen: str) -> str:
    return f"sum by ({CLUSTER}, result) (rate(barnabas_transactions_ended_total{{{chosen}}}{RATE}))"
