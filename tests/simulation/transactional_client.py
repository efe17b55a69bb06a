"""A producer whose transactions write to all partitions of a topic, as clients do since KIP-890, and a reader.

Values are the numbers of the transactions.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, parse_header
from barnabas_broker.wire.records import Record, decode_batch, encode_batch
from barnabas_broker.wire.transaction_markers import decode_marker
from simulation.clients import Client, Failed

PRODUCE: Final = 0, 12
FETCH: Final = 1, 12
FIND_COORDINATOR: Final = 10, 3
INIT_PRODUCER_ID: Final = 22, 5
END_TXN: Final = 26, 5
TXN_OFFSET_COMMIT: Final = 28, 5
OFFSET_FETCH: Final = 9, 7
TIMEOUT_MS: Final = 5_000
GROUP: Final = 0
TRANSACTION: Final = 1
NONE: Final = 0
TRY_AGAIN: Final = frozenset({3, 6, 7, 14, 15, 16, 19, 20, 51, 56, 88})
READ_COMMITTED: Final = 1


class Lost(Exception):
    """The transaction cannot go on; how it ends only the brokers know."""


class TransactionalProducer:
    """One transaction after the other. `committed` and `aborted` are those whose end was acknowledged so."""

    def __init__(self, client: Client, name: str, topic: str, partitions: int) -> None:
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.is_stopping = False
        self.name = name
        self._client = client
        self._topic = topic
        self._partitions = range(partitions)
        self._coordinators: dict[int, str] = {}
        """By the kind of key."""
        self._producer_id = self._epoch = -1
        self._number = 0

    async def run(self) -> None:
        """Until it is told to stop; then its last transaction is over."""
        await self._init()
        while not self.is_stopping:
            self._number += 1
            value = f"{self.name}/{self._number}"
            commits = self._client.random.random() < 0.7
            try:
                await self._write_to_all(value)
                await self._commit_offset()
                await self._end(commits)
            except Lost:
                await self._init()
                continue
            (self.committed if commits else self.aborted).append(value)
            await asyncio.sleep(self._client.random.expovariate(8))
        await self._init()

    async def _init(self) -> None:
        request = message_class("InitProducerIdRequest")(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        answer = await self._ask_coordinator(INIT_PRODUCER_ID, request)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _end(self, commits: bool) -> None:
        request = message_class("EndTxnRequest")(
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commits,
        )
        answer = await self._ask_coordinator(END_TXN, request)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    async def _commit_offset(self) -> None:
        """The number of the transaction, for a group of the producer's own name."""
        kind = message_class("TxnOffsetCommitRequest")
        topic = kind.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=self._number)
        request = kind(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[topic(name=self._topic, partitions=[partition])],
        )
        await self._ask_coordinator(TXN_OFFSET_COMMIT, request, GROUP)

    async def committed_offset(self) -> int:
        """The stable offset of the producer's group."""
        kind = message_class("OffsetFetchRequest")
        topics = [kind.OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])]
        request = kind(group_id=self.name, topics=topics, require_stable=True)
        answer = await self._ask_coordinator(OFFSET_FETCH, request, GROUP)
        return int(answer.topics[0].partitions[0].committed_offset)

    async def _ask_coordinator(self, api: tuple[int, int], request: Any, kind: int = TRANSACTION) -> Any:
        while True:
            with suppress(Failed):
                if kind not in self._coordinators:
                    self._coordinators[kind] = await self._find(kind)
                answer = await self._client.ask(self._coordinators[kind], api, request)
                code = _code(answer)
                if code == NONE:
                    return answer
                if code not in TRY_AGAIN:
                    raise Lost(code)
            self._coordinators.pop(kind, None)
            await self._client.pause()

    async def _find(self, kind: int) -> str:
        request = message_class("FindCoordinatorRequest")(key=self.name, key_type=kind)
        answer = await self._client.any(FIND_COORDINATOR, request)
        if answer.error_code:
            raise Failed(f"error {answer.error_code}")
        return f"b{answer.node_id}"

    async def _write_to_all(self, value: str) -> None:
        """Raises Lost once no write is under way any more: it would be one of the next transaction."""
        writes = (self._write(number, value) for number in self._partitions)
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _write(self, partition: int, value: str) -> None:
        leader: str | None = None
        while True:
            with suppress(Failed):
                leader = leader or await self._client.leader(self._topic, partition)
                code = await self._produce(leader, partition, value)
                if code == NONE:
                    return
                if code not in TRY_AGAIN:
                    raise Lost(code)
            leader = None
            await self._client.pause()

    async def _produce(self, leader: str, partition: int, value: str) -> int:
        batch = encode_batch(
            [Record(0, self._client.host.now_ms(), None, value.encode())],
            attributes=TRANSACTIONAL_BIT,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
        )
        request = message_class("ProduceRequest")
        topic = request.TopicProduceData
        data = topic.PartitionProduceData(index=partition, records=bytes(batch))
        made = request(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=1500,
            topic_data=[topic(name=self._topic, partition_data=[data])],
        )
        response = await self._client.ask(leader, PRODUCE, made)
        return int(response.responses[0].partition_responses[0].error_code)


def _code(answer: Any) -> int:
    """The error of the whole answer, or that of its only partition."""
    topics = getattr(answer, "topics", ())
    whole = int(getattr(answer, "error_code", NONE))
    return whole or (int(topics[0].partitions[0].error_code) if topics else NONE)


async def committed_values(client: Client, topic: str, partition: int) -> list[str]:
    """All that a consumer of committed records reads, from the start to the end of the log. Raises Failed.

    Nothing may be open any more: the last stable offset is the high watermark.
    """
    leader = await client.leader(topic, partition)
    values: list[str] = []
    offset = 0
    while True:
        found = await _fetch(client, leader, topic, partition, offset)
        if found.error_code or found.last_stable_offset < found.high_watermark:
            raise Failed(f"error {found.error_code}, stable until {found.last_stable_offset}")
        if offset == found.high_watermark:
            return values
        offset = _take(bytes(found.records or b""), list(found.aborted_transactions or ()), values)


async def _fetch(client: Client, leader: str, topic: str, partition: int, offset: int) -> Any:
    request = message_class("FetchRequest")
    wanted = request.FetchTopic.FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    made = request(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[request.FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
    )
    response = await client.ask(leader, FETCH, made)
    return response.responses[0].partitions[0]


def _take(data: bytes, aborted: list[Any], values: list[str]) -> int:
    """Append the values that are committed; return where to read on."""
    aborted.sort(key=lambda each: each.first_offset)
    skipped: set[int] = set()
    position = offset = 0
    while len(data) - position >= HEADER_BYTES:
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            break
        while aborted and aborted[0].first_offset <= header.last_offset:
            skipped.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = decode_marker(memoryview(data)[position:], header)
            if marker is not None and not marker.is_commit:
                skipped.discard(marker.producer_id)
        elif header.producer_id not in skipped:
            records = decode_batch(data, position, header, 1 << 20)
            values += [(record.value or b"").decode() for record in records]
        position += header.size_bytes
        offset = header.last_offset + 1
    return offset
