"""Appends to partitions, and reads from them, wherever their leaders are: on this broker, or by Produce and Fetch."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from barnabas_broker.coordinators.runtime.peer_requests import Exchange, LinkEnvironment, PeerRequests
from barnabas_broker.coordinators.share_delivery.dead_letters import Destination
from barnabas_broker.coordinators.share_delivery.reading import READ_BYTES_MAX, read_batches
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.logs.timestamp_lookup import offset_for_timestamp
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.messages import FetchRequest, ListOffsetsRequest, ProduceRequest
from barnabas_broker.wire.record_batch import parse_header
from barnabas_core.clock import Clock
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn

PRODUCE: Final = Exchange("ProduceResponse", 13)
FETCH: Final = Exchange("FetchResponse", 17)
LIST_OFFSETS: Final = Exchange("ListOffsetsResponse", 8)
EARLIEST: Final = -2
TIMEOUT_MS: Final = 30_000
ALL_REPLICAS: Final = -1


class Unknown(Exception):
    """The batch may have been appended or not."""


class PartitionClient:
    """The client; it asks each broker one thing at a time."""

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        clock: Clock,
        links: LinkEnvironment,
        is_cached: Callable[[FileSlice], bool],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._clock = clock
        self._produces = PeerRequests(links, PRODUCE)
        self._fetches = PeerRequests(links, FETCH)
        self._offsets = PeerRequests(links, LIST_OFFSETS)
        self._is_cached = is_cached
        self._turns: defaultdict[tuple[int, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._produces.close()
        self._fetches.close()
        self._offsets.close()

    async def append(self, place: Destination, batch: bytearray) -> None:
        """Append a batch with acks=all. Raises ApiError if it was not appended, and Unknown if it may have been."""
        if place.leader == self._broker_id:
            await self._append_here(place, batch)
            return
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=TIMEOUT_MS,
            topic_data=[_topic_data(place, batch)],
        )
        response = await self._ask(self._produces, place.leader, request)
        if response is None:
            raise Unknown(f"broker {place.leader} did not answer")
        result = response.responses[0].partition_responses[0]
        if result.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            raise Unknown(ErrorCode(result.error_code).name)
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), f"broker {place.leader} refused a dead letter")

    async def _append_here(self, place: Destination, batch: bytearray) -> None:
        done: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        with self._replicas.failures.using(place.topic, place.partition) as hosted:
            hosted.check_writable(all_replicas=True)
            now_ms = self._clock.now_ms()
            appended = hosted.append_as_leader(memoryview(batch), parse_header(batch, 0), now_ms)
        hosted.waits.wait(appended.end_offset, partial(end, done), hosted.log.high_watermark)
        error = await done
        if error is not None:
            raise Unknown(str(error))

    async def read(self, place: Destination, offset: int) -> tuple[memoryview, int]:
        """Return batches from `offset` on, perhaps with earlier records of the first one, and the high watermark.

        An offset below the start of the log means the start. Raises ApiError.
        """
        if place.leader == self._broker_id:
            return await self._read_here(place, offset)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=READ_BYTES_MAX, topics=[_fetch_topic(place, offset)]
        )
        response = await self._ask(self._fetches, place.leader, request)
        if response is None:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"broker {place.leader} did not answer")
        result = response.responses[0].partitions[0]
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not offset:
            return await self.read(place, max(await self._listed(place, EARLIEST), 1))
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), f"broker {place.leader} refused a read of dead letters")
        return memoryview(result.records or b""), result.high_watermark

    async def _read_here(self, place: Destination, offset: int) -> tuple[memoryview, int]:
        with self._replicas.failures.using(place.topic, place.partition) as hosted:
            hosted.check_readable(-1)
            hosted.check_caught_up()
            start = max(offset, hosted.log.log_start_offset)
            batches = await read_batches(
                hosted, start, READ_BYTES_MAX, self._is_cached, at_least_one=True, is_committed=False
            )
            return memoryview(b"") if batches is None else batches.data, hosted.log.high_watermark

    async def offset_since(self, place: Destination, timestamp_ms: int) -> int | None:
        """Return the offset of the first record with the timestamp or a later one; None if there is none.

        Raises ApiError.
        """
        if place.leader != self._broker_id:
            offset = await self._listed(place, timestamp_ms)
            return None if offset < 0 else offset
        with self._replicas.failures.using(place.topic, place.partition) as hosted:
            hosted.check_readable(-1)
            hosted.check_caught_up()
            end, turn = hosted.log.high_watermark, FairTurn(self._clock)
            found = await offset_for_timestamp(hosted.log, timestamp_ms, end, turn)
        return None if found is None else found.offset

    async def _listed(self, place: Destination, timestamp_ms: int) -> int:
        """Return the offset for a timestamp, or for EARLIEST; -1 if there is none. Raises ApiError."""
        kind = ListOffsetsRequest.ListOffsetsTopic
        wanted = kind.ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp_ms)
        request = ListOffsetsRequest(replica_id=-1, topics=[kind(name=place.topic, partitions=[wanted])])
        response = await self._ask(self._offsets, place.leader, request)
        result = None if response is None else response.topics[0].partitions[0]
        if result is None or result.error_code:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"broker {place.leader} did not list the offset of a time")
        return int(result.offset)

    async def _ask(self, requests: PeerRequests, broker_id: int, request: Any) -> Any:
        async with self._turns[broker_id, type(request).__name__]:
            return await requests.ask(broker_id, request)


def end(done: asyncio.Future[ApiError | None], error: ApiError | None) -> None:
    """Set the outcome of what a task waits for."""
    if not done.done():  # The future is done if its task was cancelled.
        done.set_result(error)


def _topic_data(place: Destination, batch: bytearray) -> ProduceRequest.TopicProduceData:
    kind = ProduceRequest.TopicProduceData
    partition = kind.PartitionProduceData(index=place.partition, records=bytes(batch))
    return kind(topic_id=place.topic_id, partition_data=[partition])


def _fetch_topic(place: Destination, offset: int) -> FetchRequest.FetchTopic:
    kind = FetchRequest.FetchTopic
    partition = kind.FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=READ_BYTES_MAX)
    return kind(topic_id=place.topic_id, partitions=[partition])
