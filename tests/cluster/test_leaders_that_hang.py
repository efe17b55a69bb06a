"""Transactions that end while the leader of their partition hangs complete as soon as another broker leads."""

import socket
import time
from pathlib import Path
from typing import Any

from kafka.protocol.admin import ListTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from barnabas_core.topic_name import TRANSACTION_STATE
from harness.ask import ask_on
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.soak import size, took

TRANSACTIONS = size(60, 10_000)
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

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ids: dict[str, int] = {}

    def begin(self, count: int, topic: str) -> None:
        kind = AddPartitionsToTxnRequest
        for name in (f"pay{number}" for number in range(count)):
            init = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=600_000, producer_id=-1, producer_epoch=-1
            )
            self._ids[name] = self._ask(init, 4).producer_id
            add = kind(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=self._ids[name],
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            (added,) = self._ask(add, 3).results_by_topic_v3_and_below
            assert added.results_by_partition[0].partition_error_code == 0

    def commit(self) -> None:
        for name, producer_id in self._ids.items():
            end = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=0, committed=True)
            assert self._ask(end, 4).error_code == 0

    def incomplete(self) -> int:
        listed = self._ask(ListTransactionsRequest(state_filters=["PrepareCommit"], producer_id_filters=[]), 0)
        return len(listed.transaction_states)

    def _ask(self, request: Any, version: int) -> Any:
        return ask_on(self._connection, request, version)


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
            producers = Producers(connection)
            producers.begin(TRANSACTIONS, "t")
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
