"""The rows of transactions, on one broker and on three."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from bench.clusters import BROKERS
from bench.metrics import MB_PER_CPU_S, P50_US, Aim, Better, Metric
from bench.row import Group, Place, Row
from bench.scenarios.transaction_ids import TransactionalIds
from bench.scenarios.transactions import Copy, Transact

KAFKA: Final = "kafka"
COMMITS_MS: Final = (10, 100, 1000)
QUICK_COMMITS_MS: Final = 100
"""The row of a quick run."""
MB_PER_S: Final = Metric("mb_per_s", "MB/s", Better.HIGHER, Aim(times_peer_min=1.5))
END_P99_US: Final = Metric(
    "p99_us", "EndTxn p99 us (the slowest of fewer than 100)", Better.LOWER, Aim(times_peer_max=0.5)
)
END_P50_US: Final = Metric("p50_us", "EndTxn p50 us", Better.LOWER)
RECORDS: Final = Metric("records_per_s", "records/s", Better.HIGHER, Aim(times_peer_min=1.5))
WRITES: Final = (MB_PER_S, END_P50_US, END_P99_US, MB_PER_CPU_S)
COPIES: Final = (RECORDS, END_P50_US, END_P99_US, MB_PER_CPU_S)
WRITTEN: Final = {
    1: Group("transactions", "Transactions, Java client, 1 KB, 6 partitions", KAFKA, WRITES),
    BROKERS: Group("cluster-transactions", "Three brokers: transactions, Java client, 3 replicas", KAFKA, WRITES),
}
COPIED: Final = {
    1: Group("exactly-once", "A copy exactly once, Java client, 1 KB, 6 partitions", KAFKA, COPIES),
    BROKERS: Group("cluster-exactly-once", "Three brokers: a copy exactly once, 3 replicas", KAFKA, COPIES),
}
IDS: Final = Group(
    "transactional-ids",
    "Transactional ids, loaded at the start and expired",
    KAFKA,
    (
        Metric("loaded_s", "start to the first id served, s", Better.LOWER, Aim(times_peer_max=1.05)),
        Metric("expired_s", "start to all ids expired, s", Better.LOWER),
        P50_US,
        Metric("p99_us", "round trip p99 us while they expire", Better.LOWER),
        Metric("rss_mb", "RSS MB with them", Better.LOWER, Aim(times_peer_max=1.05)),
    ),
)


def id_rows() -> Iterator[Row]:
    """Return the rows with new servers."""
    for count, quick in ((10_000, True), (100_000, False)):
        scenario = TransactionalIds(count)
        yield Row(f"transactional-ids.{count}", f"{count:,} ids", IDS, scenario, quick, place=Place.OWN, slow=True)


def transaction_rows(brokers: int) -> Iterator[Row]:
    """Return the rows on the standing broker, or on the standing cluster of `brokers`."""
    place, prefix = (Place.BROKER, "") if brokers == 1 else (Place.CLUSTER, "cluster.")
    loads: tuple[tuple[str, Group, type[Transact] | type[Copy]], ...] = (
        ("transactions", WRITTEN[brokers], Transact),
        ("exactly-once", COPIED[brokers], Copy),
    )
    for (key, group, kind), commit_ms in product(loads, COMMITS_MS):
        scenario = kind(commit_ms=commit_ms, replication_factor=brokers)
        title, quick = f"a commit each {commit_ms:,} ms", commit_ms == QUICK_COMMITS_MS
        yield Row(f"{prefix}{key}.{commit_ms}ms", title, group, scenario, quick, place=place)
