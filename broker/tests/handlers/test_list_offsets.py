"""ListOffsets returns only committed offsets, and stops for clients that disconnect or request too much."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asked_in_turns import MANY, SlowClock
from one_replica import FLIGHTS, HERE, OTHER, Broker, led

from barnabas_broker.handlers import partition_offsets
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.large_responses import BYTES_MAX, CloseConnection, LargeResponses
from barnabas_broker.handlers.partition_offsets import LARGEST_TIMESTAMP, NOTHING, find_offset
from barnabas_broker.storage.logs.offset_lookup import TimestampOffset
from barnabas_broker.wire.messages import ListOffsetsRequest
from barnabas_core.loop_turns import FairTurn


async def found(broker: Broker) -> TimestampOffset:
    partition, turn = broker.partition, FairTurn(broker.clock)
    return await find_offset(partition, LARGEST_TIMESTAMP, partition.log.high_watermark, turn)


async def test_the_record_with_the_largest_timestamp_is_found_only_once_it_is_committed(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 1, HERE, OTHER, replicas=2))
    broker.append(1)
    partition = broker.partition
    assert partition.log.high_watermark == 0
    assert await found(broker) == NOTHING
    partition.fetched_by(OTHER, 0, 1, 0, 0)
    assert (await found(broker)).offset == 0


async def answer_many(broker: Broker, is_gone: Callable[[], bool], bytes_max: int = BYTES_MAX) -> object:
    """Handle a request of one client that names the same partition many times."""
    partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=FLIGHTS.partition, current_leader_epoch=-1, timestamp=-1
    )
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=FLIGHTS.topic, partitions=[partition] * MANY)]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
    context = RequestContext(2, 7, Client("PLAINTEXT", "127.0.0.1:5"), is_gone)
    timers: Any = SimpleNamespace(call_soon=asyncio.get_running_loop().call_soon)
    answers = LargeResponses(SlowClock(), timers, bytes_max)
    environment: Any = SimpleNamespace(replicas=broker.replicas, answers=answers)
    return await partition_offsets.list_offsets(environment, context, request)


async def test_list_offsets_is_aborted_if_its_client_disconnects(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 1, HERE, replicas=1))
    with pytest.raises(CloseConnection, match="the client has disconnected"):
        await answer_many(broker, lambda: True)


async def test_a_response_with_too_many_offsets_closes_its_connection(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 1, HERE, replicas=1))
    with pytest.raises(CloseConnection, match="the response has more than 500 bytes; request fewer elements at once"):
        await answer_many(broker, lambda: False, bytes_max=500)
