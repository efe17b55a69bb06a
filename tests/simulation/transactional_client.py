"""The requests of one transactional id, as clients send them since KIP-890: each is retried until it is answered."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT
from barnabas_broker.wire.records import Record, encode_batch
from simulation.clients import Client, Failed

PRODUCE: Final = 0, 12
FIND_COORDINATOR: Final = 10, 3
INIT_PRODUCER_ID: Final = 22, 5
END_TXN: Final = 26, 5
TXN_OFFSET_COMMIT: Final = 28, 5
OFFSET_FETCH: Final = 9, 7
TIMEOUT_MS: Final = 4_000
GROUP: Final = 0
TRANSACTION: Final = 1
NONE: Final = 0
TRY_AGAIN: Final = frozenset({3, 6, 7, 14, 15, 16, 19, 20, 51, 56, 88})
NOBODY: Final = ProducerEpoch(-1, -1)


class Lost(Exception):
    """The error that the transaction cannot go on."""


class TransactionalClient:
    """`producer` is from the last response to InitProducerId or EndTxn. `group` is the group of its offsets."""

    def __init__(self, client: Client, transactional_id: str, group: str) -> None:
        self.client = client
        self.producer = NOBODY
        self.may_have_committed = False
        """True if an EndTxn has requested a commit, and its outcome is unknown."""
        self._id = transactional_id
        self._group = group
        self._coordinators: dict[int, str] = {}
        """The coordinators by the kind of key."""
        self._sequences: dict[tuple[str, int], int] = {}
        """The sequences of the current epoch."""

    def double(self, client: Client) -> "TransactionalClient":
        """Return a client that uses the same producer id and epoch."""
        other = TransactionalClient(client, self._id, self._group)
        other.producer, other._sequences = self.producer, dict(self._sequences)
        return other

    async def init(self) -> None:
        """Become the only producer of the id."""
        request = message_class("InitProducerIdRequest")(
            transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        self._became(await self._ask_coordinator(INIT_PRODUCER_ID, request))

    async def end(self, *, commits: bool) -> None:
        """Send EndTxn. Raises Lost."""
        self._became(await self._ask_coordinator(END_TXN, self._end_request(commits), commits=commits))

    def _became(self, answer: Any) -> None:
        self.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        self.may_have_committed = False
        self._sequences.clear()

    def _end_request(self, commits: bool) -> Any:
        return message_class("EndTxnRequest")(
            transactional_id=self._id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=commits,
        )

    async def commit_offset(self, topic: str, offset: int) -> None:
        """Send TxnOffsetCommit for partition 0 of `topic`. Raises Lost."""
        await self._ask_coordinator(TXN_OFFSET_COMMIT, self._offset_request(topic, offset), GROUP)

    def _offset_request(self, topic: str, offset: int) -> Any:
        kind = message_class("TxnOffsetCommitRequest")
        of_topic = kind.TxnOffsetCommitRequestTopic
        partition = of_topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        return kind(
            transactional_id=self._id,
            group_id=self._group,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=[of_topic(name=topic, partitions=[partition])],
        )

    async def committed_offset(self, topic: str) -> int:
        """Return the stable offset of the group in partition 0 of `topic`."""
        kind = message_class("OffsetFetchRequest")
        topics = [kind.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        request = kind(group_id=self._group, topics=topics, require_stable=True)
        answer = await self._ask_coordinator(OFFSET_FETCH, request, GROUP)
        return int(answer.topics[0].partitions[0].committed_offset)

    async def _ask_coordinator(
        self, api: tuple[int, int], request: Any, kind: int = TRANSACTION, *, commits: bool = False
    ) -> Any:
        while True:
            with suppress(Failed):
                if kind not in self._coordinators:
                    self._coordinators[kind] = await self._find(kind)
                try:
                    answer = await self.client.ask(self._coordinators[kind], api, request)
                except Failed:
                    self.may_have_committed |= commits
                    raise
                code = _code(answer)
                if code == NONE:
                    return answer
                if code not in TRY_AGAIN:
                    raise Lost(code)
                self.may_have_committed |= commits
            self._coordinators.pop(kind, None)
            await self.client.pause()

    async def _find(self, kind: int) -> str:
        key = self._group if kind == GROUP else self._id
        request = message_class("FindCoordinatorRequest")(key=key, key_type=kind)
        answer = await self.client.any(FIND_COORDINATOR, request)
        if answer.error_code:
            raise Failed(f"error {answer.error_code}")
        return f"b{answer.node_id}"

    async def write(self, topic: str, partition: int, values: list[str]) -> None:
        """Send Produce. Raises Lost."""
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(values)
        leader: str | None = None
        while True:
            with suppress(Failed):
                leader = leader or await self.client.leader(topic, partition)
                code = await self._produce(leader, topic, partition, self._batch(sequence, values))
                if code == NONE:
                    return
                if code not in TRY_AGAIN:
                    raise Lost(code)
            leader = None
            await self.client.pause()

    def _batch(self, sequence: int, values: list[str]) -> bytes:
        now_ms = self.client.host.now_ms()
        return bytes(
            encode_batch(
                [Record(index, now_ms, None, value.encode()) for index, value in enumerate(values)],
                attributes=TRANSACTIONAL_BIT,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.epoch,
                base_sequence=sequence,
            )
        )

    async def _produce(self, leader: str, topic: str, partition: int, batch: bytes) -> int:
        request = message_class("ProduceRequest")
        of_topic = request.TopicProduceData
        wanted = of_topic.PartitionProduceData(index=partition, records=batch)
        made = request(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=1500,
            topic_data=[of_topic(name=topic, partition_data=[wanted])],
        )
        response = await self.client.ask(leader, PRODUCE, made)
        return int(response.responses[0].partition_responses[0].error_code)


def _code(answer: Any) -> int:
    """Return the error of the whole response, or that of its only partition."""
    topics = getattr(answer, "topics", ())
    whole = int(getattr(answer, "error_code", NONE))
    return whole or (int(topics[0].partitions[0].error_code) if topics else NONE)


async def all_of(*works: Any) -> None:
    """Wait for all, then raise the first error: a pending write would be part of the next transaction."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome
