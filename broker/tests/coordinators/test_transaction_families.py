"""The metrics of transactions: those that are overdue by id, and their last stable offsets by partition."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from one_replica import Broker, led
from transaction_world import TIMEOUT_MS, TransactionWorld

from barnabas_broker.server.metrics.exposition import hosted_of, render
from barnabas_broker.server.metrics.group_families import LATE_AFTER_MS, transaction_families
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT, parse_header
from barnabas_broker.wire.records import Record, encode_batch
from harness.verified import verified

MAX_TIMEOUT_MS = 900_000
LAG = 'kafka_cluster_partition_laststableoffsetlag{topic="flights",partition="0"}'
STABLE = 'barnabas_partition_last_stable_offset{topic="flights",partition="0"}'
LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"
OVERDUE = 'barnabas_transaction_overdue_seconds{transactional_id="pay"}'


def told(world: TransactionWorld, broker: Broker) -> dict[str, float]:
    """Return the samples of a scrape."""
    environment: Any = SimpleNamespace(
        transactions=world.coordinator,
        clock=world.timers.clock,
        config=SimpleNamespace(transaction_max_timeout_ms=MAX_TIMEOUT_MS),
    )

    async def page() -> bytes:
        hosted = await hosted_of(broker.replicas.lookup.partitions())
        return b"".join([data async for data in render(await transaction_families(environment, hosted))])

    lines = asyncio.run(page()).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def append(broker: Broker, producer: ProducerEpoch, now_ms: int) -> None:
    batch = encode_batch(
        [Record(0, now_ms, None, b"value")],
        attributes=TRANSACTIONAL_BIT,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
    )
    header = parse_header(batch, 0)
    broker.partition.append_as_leader(memoryview(batch), header, now_ms, verified(broker.partition.log, header))


def test_metrics_report_an_overdue_transaction_and_its_lag_until_its_marker_is_written(tmp_path: Path) -> None:
    world, broker = TransactionWorld(), Broker(tmp_path, led(1, 1, 1, replicas=1))
    producer = world.begun()
    broker.append(3)
    append(broker, producer, world.timers.clock.now_ms())
    broker.append(2)
    values = told(world, broker)
    assert values['barnabas_transactional_ids{state="Ongoing"}'] == 1
    assert (values[LAG], values[STABLE], values[LATE]) == (3, 3, 0)
    assert OVERDUE not in values

    world.timers.pass_time((TIMEOUT_MS + MAX_TIMEOUT_MS + LATE_AFTER_MS) / 1000)
    values = told(world, broker)  # The transaction is aborted, and its marker is not written yet.
    assert values['barnabas_transactional_ids{state="PrepareAbort"}'] == 1
    assert values[OVERDUE] == (MAX_TIMEOUT_MS + LATE_AFTER_MS) / 1000
    assert values[LATE] == 1

    (marker,) = world.write_markers()
    broker.partition.append_marker(marker, 2, world.timers.clock.now_ms())
    values = told(world, broker)
    assert values['barnabas_transactional_ids{state="CompleteAbort"}'] == 1
    assert values['barnabas_transactions_ended_total{result="aborted"}'] == 1
    assert values['barnabas_transactions_ended_total{result="committed"}'] == 0
    assert values['barnabas_transaction_markers_refused_total{error="INVALID_PRODUCER_EPOCH"}'] == 0
    assert (values[LAG], values[LATE]) == (0, 0)
    assert STABLE not in values
    assert OVERDUE not in values


def test_metrics_report_no_transaction_lag_of_followers(tmp_path: Path) -> None:
    world, broker = TransactionWorld(), Broker(tmp_path, led(1, 1, 1, replicas=1))
    values = told(world, broker)
    assert (values[LAG], values[LATE]) == (0, 0)
    append(broker, ProducerEpoch(7, 0), 0)
    assert told(world, broker)[LATE] == 1
    broker.show(led(2, 2, 1, 2, replicas=2))
    assert LAG not in told(world, broker)
