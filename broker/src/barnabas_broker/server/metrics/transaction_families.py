"""The metrics of transactional ids that this broker coordinates, and of transactions in its partitions."""

from collections import Counter
from collections.abc import Iterator
from heapq import nlargest
from typing import Final, NamedTuple

from barnabas_broker.coordinators.transactions.marker_sender import REFUSED
from barnabas_broker.coordinators.transactions.transaction import (
    DEAD,
    ONGOING,
    PREPARED,
    Transaction,
    TransactionState,
    state_name,
)
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.stable_offset import held_back, undecided_since_ms
from barnabas_broker.server.metrics.exposition import Family, Sample, labels, single
from barnabas_broker.server.metrics.hosted import Hosted, by_partition
from barnabas_core.fair_turns import GROUP_OFFSETS, in_turns

NAMED_MAX: Final = 20
"""The maximum number of transactional ids with a time series, because a series for each id would be too many."""
LATE_AFTER_MS: Final = 5 * 60_000
"""The ms beyond transaction.max.timeout.ms after which a transaction counts as hanging, as in Kafka."""


class _Ids(NamedTuple):
    """The transactional ids that this broker coordinates, at one scrape."""

    counts: Counter[TransactionState]
    overdue_ms: list[tuple[int, str]]
    """The NAMED_MAX most overdue transactions, the most overdue first.

    An item has the ms since the transaction's timeout, and the transactional id.
    """


async def transaction_families(environment: HandlerEnvironment, hosted: Hosted) -> list[Family]:
    """Return the metric families for the coordinator and for the partitions that this broker leads."""
    return [
        *_of_ids(await _look_at_ids(environment)),
        *_of_coordinator(environment),
        *_of_partitions(environment, hosted),
    ]


async def _look_at_ids(environment: HandlerEnvironment) -> _Ids:
    counts = Counter({state: 0 for state in TransactionState if state is not DEAD})
    overdue, now_ms = [], environment.clock.now_ms()
    async for name, each in in_turns(environment.transactions.loaded_transactions(), GROUP_OFFSETS):
        counts[each.state] += 1
        late_ms = _overdue_ms(each, now_ms)
        if late_ms > 0:
            overdue.append((late_ms, name))
    return _Ids(counts, nlargest(NAMED_MAX, overdue))


def _overdue_ms(transaction: Transaction, now_ms: int) -> int:
    """Return by how many ms an open transaction exceeds its timeout: negative before the timeout, 0 if none is open.

    A transaction that is prepared to commit or abort is open until its markers are written.
    """
    is_open = transaction.state is ONGOING or transaction.state in PREPARED
    return now_ms - transaction.started_ms - transaction.timeout_ms if is_open else 0


def _of_ids(ids: _Ids) -> list[Family]:
    return [
        Family(
            "barnabas_transactional_ids",
            "gauge",
            "Number of transactional ids that this broker coordinates, by the state of their last transaction",
            lambda: [Sample(labels(state=state_name(state)), count) for state, count in ids.counts.items()],
        ),
        Family(
            "barnabas_transaction_overdue_seconds",
            "gauge",
            f"Seconds since the timeout of an open transaction, for the {NAMED_MAX} transactions that "
            f"are overdue the longest",
            lambda: [Sample(labels(transactional_id=name), late_ms / 1000) for late_ms, name in ids.overdue_ms],
        ),
    ]


def _of_coordinator(environment: HandlerEnvironment) -> list[Family]:
    runtime, counts = environment.transactions.runtime, environment.transactions.counts
    return [
        Family(
            "barnabas_transactions_ended_total",
            "counter",
            "Number of transactions that have ended, with all markers written, by result",
            lambda: [Sample('result="committed"', counts.committed), Sample('result="aborted"', counts.aborted)],
        ),
        Family(
            "barnabas_transaction_markers_refused_total",
            "counter",
            "Number of transaction markers that the leader of a partition refused, by error; the "
            "transactions ended without these markers",
            lambda: [Sample(labels(error=code.name), counts.refused_markers[code]) for code in REFUSED],
        ),
        Family(
            "barnabas_transaction_coordinator_partitions",
            "gauge",
            "Number of partitions of __transaction_state that this broker coordinates, by state; "
            "the transactional ids of failed partitions cannot be used",
            lambda: [Sample(labels(state=state), count) for state, count in runtime.partition_counts().items()],
        ),
        single(
            "barnabas_transaction_coordinator_records_left_out",
            "gauge",
            "Number of records of __transaction_state that could not be decoded; the broker's log "
            "names the first of them",
            runtime.left_out_count(),
        ),
    ]


def _of_partitions(environment: HandlerEnvironment, hosted: Hosted) -> list[Family]:
    def lag(each: Partition) -> int | None:
        return None if each.leader is None else held_back(each.log)

    def stable_offset(each: Partition) -> int | None:
        held = lag(each)
        return each.log.high_watermark - held if held else None

    def late() -> Iterator[Sample | None]:
        before_ms = environment.clock.now_ms() - environment.config.transaction_max_timeout_ms - LATE_AFTER_MS
        count = 0
        for each in hosted.partitions:
            since_ms = undecided_since_ms(each.log) if each.leader is not None else None
            count += since_ms is not None and since_ms < before_ms
            yield None
        yield Sample("", count)

    return [
        by_partition(
            hosted,
            "kafka_cluster_partition_laststableoffsetlag",
            "Number of offsets from the last stable offset to the high watermark, which "
            "read_committed consumers cannot read yet",
            lag,
        ),
        by_partition(
            hosted,
            "barnabas_partition_last_stable_offset",
            "Last stable offset, up to which read_committed consumers can read; exported only "
            "while the offset is below the high watermark",
            stable_offset,
        ),
        Family(
            "kafka_server_replicamanager_partitionswithlatetransactionscount",
            "gauge",
            "Number of partitions led by this broker that have an open transaction whose producer has been "
            "silent for longer than transaction.max.timeout.ms plus 5 minutes",
            late,
        ),
    ]
