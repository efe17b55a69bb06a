"""Transactions that end while a leader hangs complete under the next leader, and others do not wait for them."""

import socket
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kafka.protocol.admin import ListTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from barnabas_core.topic_partition import TRANSACTION_STATE
from harness.ask import ask_on
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.soak import size, took

TRANSACTIONS = size(60, 10_000)
STUCK, ROUNDS = size(60, 2_000), size(20, 1_000)
TIMES_ALONE_MAX = 1.5
CONCURRENT_TRANSACTIONS = 51
COORDINATED = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "broker.session.timeout.ms": str(size(15_000, 60_000)),
}
"""One broker coordinates all transactional ids, and replicates their transactions to nobody.

All transactions can end before the session of the broker that hangs is over.
"""
TIMED_OUT = "did not return a valid WriteTxnMarkersResponse: TimeoutError"


class Producers:
    """Producers with one coordinator, each of them with a transaction."""

    def __init__(self, connection: socket.socket, names: Iterable[str]) -> None:
        self._connection = connection
        self._ids = {name: self._init(name) for name in names}

    def begin(self, topic: str) -> None:
        for each in self._ids:
            wait_for(partial(self._add, each, topic), lambda error: error != CONCURRENT_TRANSACTIONS, pause_s=0)

    def commit(self) -> None:
        for name, producer_id in self._ids.items():
            end = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=0, committed=True)
            assert self._ask(end, 4).error_code == 0

    def incomplete(self) -> int:
        listed = self._ask(ListTransactionsRequest(state_filters=["PrepareCommit"], producer_id_filters=[]), 0)
        return len(listed.transaction_states)

    def _init(self, name: str) -> int:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=600_000, producer_id=-1, producer_epoch=-1
        )
        return int(self._ask(request, 4).producer_id)

    def _add(self, name: str, topic: str) -> int:
        kind = AddPartitionsToTxnRequest
        add = kind(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=self._ids[name],
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        (added,) = self._ask(add, 3).results_by_topic_v3_and_below
        error = int(added.results_by_partition[0].partition_error_code)
        assert error in (0, CONCURRENT_TRANSACTIONS)
        return error

    def _ask(self, request: Any, version: int) -> Any:
        return ask_on(self._connection, request, version)


def names(count: int) -> list[str]:
    return [f"pay{number}" for number in range(count)]


def seconds_each(producer: Producers, topic: str) -> Iterator[float]:
    """Yield how long each transaction takes, with its wait for the markers of the one before."""
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        producer.begin(topic)
        producer.commit()
        yield time.perf_counter() - began_s


def p99(seconds: Iterable[float]) -> float:
    ordered = sorted(seconds)
    return ordered[len(ordered) * 99 // 100]


def coordinator(cluster: BarnabasCluster) -> int:
    cluster.ask(0, FindCoordinatorRequest(key="pay0", key_type=1), 3)
    wait_for(lambda: cluster.describe(TRANSACTION_STATE), lambda found: bool(found) and found[0].leader >= 0)
    return cluster.leader(TRANSACTION_STATE)


def test_transactions_that_end_while_a_leader_hangs_complete_once_another_broker_leads(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path, brokers=3, properties=COORDINATED) as cluster:
        coordinating = coordinator(cluster)
        hanging, other = sorted({0, 1, 2} - {coordinating})
        cluster.create_topic("t", assignment=[[hanging, other]])
        broker = cluster.brokers[coordinating]
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as connection:
            producers = Producers(connection, names(TRANSACTIONS))
            producers.begin("t")
            cluster.pause(hanging)
            try:
                producers.commit()
                assert producers.incomplete() == TRANSACTIONS, "no marker can be written"
                wait_for(lambda: cluster.partition("t", 0, as_told_by=coordinating).leader, lambda led: led == other)
                timeouts, began_s = cluster.logs_text([coordinating]).count(TIMED_OUT), time.monotonic()
                wait_for(producers.incomplete, lambda count: count == 0)
                took(f"{TRANSACTIONS} transactions complete at the new leader", time.monotonic() - began_s, 10)
            finally:
                cluster.resume(hanging)
        assert cluster.logs_text([coordinating]).count(TIMED_OUT) == timeouts, "markers wait for the broker that hangs"


def test_a_transaction_does_not_wait_for_others_whose_leader_hangs(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path, brokers=2, properties=COORDINATED) as cluster:
        coordinating = coordinator(cluster)
        hanging = 1 - coordinating
        cluster.create_topic("t", assignment=[[hanging]])
        cluster.create_topic("healthy", assignment=[[coordinating]])
        broker = cluster.brokers[coordinating]
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as connection:
            stuck, producer = Producers(connection, names(STUCK)), Producers(connection, ["healthy"])
            alone_s = p99(seconds_each(producer, "healthy"))
            stuck.begin("t")
            cluster.pause(hanging)
            try:
                stuck.commit()
                beside_s = p99(seconds_each(producer, "healthy"))
                assert stuck.incomplete() >= STUCK, "no marker can be written"
            finally:
                cluster.resume(hanging)
            took(
                f"p99 of a transaction beside {STUCK} that cannot end ({alone_s:.5f} s alone)",
                beside_s,
                TIMES_ALONE_MAX * alone_s,
            )
            wait_for(stuck.incomplete, lambda count: count == 0)
