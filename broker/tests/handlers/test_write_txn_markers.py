"""Markers end transactions; consumers with read_committed read up to the first open transaction."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from one_replica import FLIGHTS, HERE, NOW_MS, OTHER, led
from producing_broker import Client, Producing

from barnabas_broker.handlers import fetch, transactions
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.messages import WriteTxnMarkersRequest
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from harness.verified import verified

ALPHA, BETA = 5, 6
READ_COMMITTED = 1
Topic = WriteTxnMarkersRequest.WritableTxnMarker.WritableTxnMarkerTopic


@pytest.fixture
def broker(tmp_path: Path) -> Producing:
    made = Producing(tmp_path)
    made.handler_environment.purgatory = Purgatory(made.timers)
    made.handler_environment.answers = LargeResponses(made.clock, made.timers)
    return made


def send(broker: Producing, producer_id: int, sequence: int) -> None:
    """Append a record of a transaction."""
    record = Record(0, NOW_MS, b"key", b"value")
    data = encode_batch([record], attributes=0x10, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    header = parse_header(data, 0)
    broker.partition.append_as_leader(memoryview(data), header, NOW_MS, verified(broker.partition.log, header))


async def write(
    broker: Producing, producer_id: int, *topics: tuple[str, int], commit: bool = True, epoch: int = 0
) -> list[tuple[str, int, int]]:
    """Write markers; return the topics and partitions with their error codes."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[Topic(name=name, partition_indexes=[index]) for name, index in topics or [FLIGHTS]],
        coordinator_epoch=0,
        transaction_version=0,
    )
    services: Any = broker.handler_environment
    context = RequestContext(27, 2, Client(broker).client)
    response = await transactions.write_txn_markers(services, context, WriteTxnMarkersRequest(markers=[marker]))
    assert [each.producer_id for each in response.markers] == [producer_id]
    return [
        (topic.name, partition.partition_index, partition.error_code)
        for topic in response.markers[0].topics
        for partition in topic.partitions
    ]


async def end(
    broker: Producing, producer_id: int, *topics: tuple[str, int], commit: bool = True, epoch: int = 0
) -> list[int]:
    writing = asyncio.ensure_future(write(broker, producer_id, *topics, commit=commit, epoch=epoch))
    while not writing.done():
        await asyncio.sleep(0)
        broker.timers.pass_time()
    return [code for _, _, code in await writing]


def begin_fetch(broker: Producing, client: Client, isolation_level: int, min_bytes: int = 1) -> None:
    topic = FetchRequest.FetchTopic
    wanted = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[topic(topic=FLIGHTS.topic, partitions=[wanted])],
    )
    body = request.encode(version=11)
    services: Any = broker.handler_environment
    fetch.handle(services, client, 11, 7, memoryview(body), 0, len(body))


def fetched(client: Client) -> Any:
    frame = b"".join(
        part.file.read_at(part.position, part.length) if isinstance(part, FileSlice) else bytes(part)
        for part in client.answers
    )
    return FetchResponse.decode(frame, version=11, header=True, framed=True).responses[0].partitions[0]


def read(broker: Producing, isolation_level: int) -> Any:
    client = Client(broker)
    begin_fetch(broker, client, isolation_level)
    return fetched(client)


async def test_a_fetch_returns_aborted_transactions_only_with_read_committed(broker: Producing) -> None:
    send(broker, ALPHA, 0)
    send(broker, BETA, 0)
    assert await end(broker, ALPHA, commit=False) == [0]
    committed, uncommitted = read(broker, READ_COMMITTED), read(broker, 0)
    assert (committed.high_watermark, committed.last_stable_offset) == (3, 1)
    assert [(each.producer_id, each.first_offset) for each in committed.aborted_transactions] == [(ALPHA, 0)]
    assert len(committed.records) < len(uncommitted.records)
    assert (uncommitted.last_stable_offset, uncommitted.aborted_transactions) == (1, None)


async def test_a_read_committed_fetch_waits_for_bytes_below_the_first_open_transaction(broker: Producing) -> None:
    send(broker, ALPHA, 0)
    client = Client(broker)
    begin_fetch(broker, client, READ_COMMITTED)
    send(broker, BETA, 0)
    broker.timers.pass_time()
    assert not client.answers
    await end(broker, ALPHA)
    broker.timers.pass_time()
    assert fetched(client).last_stable_offset == 1


async def test_a_marker_is_refused_where_kafka_refuses_it(broker: Producing) -> None:
    assert await end(broker, ALPHA, epoch=1) == [0]
    assert await end(broker, ALPHA, epoch=0) == [47]
    assert await end(broker, ALPHA, ("nowhere", 0), FLIGHTS, epoch=1) == [3, 0]
    assert broker.partition.log.log_end_offset == 2


async def test_the_response_to_a_marker_waits_until_it_is_replicated(tmp_path: Path, broker: Producing) -> None:
    broker.show(led(HERE, 2, HERE, OTHER, replicas=2))
    writing = asyncio.ensure_future(write(broker, ALPHA))
    while broker.partition.log.log_end_offset == 0:
        await asyncio.sleep(0)
    assert not writing.done()
    broker.partition.fetched_by(OTHER, 0, 1, 0, 0)
    broker.timers.pass_time()
    assert [code for _, _, code in await writing] == [0]
