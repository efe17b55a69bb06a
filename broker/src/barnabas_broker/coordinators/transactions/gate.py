"""The verification of partitions by the coordinator of a transactional id, on this broker or on another broker.

The coordinator checks whether partitions are in the open transaction, or adds them to the transaction. While a request
for a producer is in flight, further partitions of the same producer wait, and the next request contains all of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_broker.coordinators.runtime.peer_requests import Exchange, LinkEnvironment
from barnabas_broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas_broker.coordinators.transactions.decisions import Decision
from barnabas_broker.coordinators.transactions.marker_sender import LeaderQueues, state_of
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, transaction_version
from barnabas_broker.storage.inspection import KeptBatches
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TRANSACTION_STATE, TopicPartition, coordinator_partition

_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.02
"""The pause in seconds before the coordinator is asked again, while the producer's previous transaction is ending."""

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest total size of the batches that wait for coordinators. A single batch may be larger."""

IMPLICIT_VERSION: Final = 2
"""The first transaction.version in which a Produce adds its partitions to the transaction."""

Codes = dict[TopicPartition, ErrorCode]


class _Question(NamedTuple):
    transactional_id: str
    by: ProducerEpoch
    adds: bool


class _Asked(msgspec.Struct, eq=False):
    """The partitions to verify or add at the coordinator, with the future that receives their error codes."""

    question: _Question
    partitions: Collection[TopicPartition]
    answer: asyncio.Future[Codes]

    def settle(self, codes: Codes) -> None:
        """Pass on the error codes, unless nobody waits for them any more."""
        if not self.answer.done():
            self.answer.set_result(codes)

    def refuse(self, code: ErrorCode) -> None:
        """Pass on one error code for all partitions."""
        self.settle(dict.fromkeys(self.partitions, code))


class TransactionGate:
    """The check, before a transactional append, whether the partition is in the open transaction of the producer.

    The partition's leader asks the coordinator of the transactional id, which is on this or another broker. If another
    broker becomes the coordinator meanwhile, the gate asks that broker.
    """

    exchange = Exchange("AddPartitionsToTxnResponse", 5)

    def __init__(
        self,
        broker_id: int,
        environment: LinkEnvironment,
        image: MetadataImage,
        coordinator: TransactionCoordinator,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._coordinator = coordinator
        self._sleep = sleep
        self._spawn = environment.spawn
        self._clock = environment.clock
        self._waiting: dict[_Question, list[tuple[TopicPartition, asyncio.Future[ErrorCode]]]] = {}
        self._queues: LeaderQueues[_Asked] = LeaderQueues(environment, self)
        """The questions to other brokers, by the partition of `__transaction_state` that the coordinator leads."""
        self.kept = KeptBatches(KEPT_BYTES_MAX, "for transaction coordinators")
        """The batches that wait for an answer of the gate."""
        image.subscribe(self._image_changed)

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._queues.close()

    @property
    def takes_in(self) -> bool:
        """True if the cluster's transaction.version lets a Produce add its partitions to the transaction."""
        return transaction_version(self._image.features) >= IMPLICIT_VERSION

    def ask(
        self, transactional_id: str, by: ProducerEpoch, partition: TopicPartition, *, adds: bool
    ) -> asyncio.Future[ErrorCode]:
        """Return a future of NONE if the partition is in the producer's open transaction, else of an error code.

        If `adds` is True, the coordinator adds the partition to the transaction first. CONCURRENT_TRANSACTIONS is
        returned only after several attempts. A caller that no longer waits may set the result itself.
        """
        question = _Question(transactional_id, by, adds)
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(question)
        if waiting is None:
            self._waiting[question] = [(partition, answer)]
            self._spawn(self._ask_all(question))
        else:
            waiting.append((partition, answer))
        return answer

    async def _ask_all(self, question: _Question) -> None:
        try:
            while waiting := self._waiting[question]:
                self._waiting[question] = []
                codes = await self._ask_patiently(question, {partition for partition, _ in waiting})
                for partition, answer in waiting:
                    if not answer.done():
                        answer.set_result(codes.get(partition, ErrorCode.NETWORK_EXCEPTION))
        finally:
            for _, answer in self._waiting.pop(question):
                answer.cancel()

    async def _ask_patiently(self, question: _Question, partitions: Collection[TopicPartition]) -> Codes:
        codes = await self._ask_once(question, partitions)
        for _ in range(_ATTEMPTS):
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
                break
            await self._sleep(_PAUSE_S)
            codes = await self._ask_once(question, partitions)
        return codes

    async def _ask_once(self, question: _Question, partitions: Collection[TopicPartition]) -> Codes:
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        self._route(_Asked(question, partitions, answer))
        return await answer

    def _route(self, asked: _Asked) -> None:
        document = self._image.topics.get(TRANSACTION_STATE)
        if document is None:
            asked.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        number = coordinator_partition(asked.question.transactional_id, len(document.partitions))
        state = document.partitions[number]
        if state.leader == NO_LEADER:
            asked.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif state.leader == self._broker_id:
            transactional_id, by, adds = asked.question
            self.decide(transactional_id, by, adds=adds, partitions=asked.partitions, answer=asked.settle)
        else:
            partition = TopicPartition(TRANSACTION_STATE, number)
            self._queues.put(partition, (asked,))
            self._queues.place(partition, state)

    def _image_changed(self, change: ImageChange) -> None:
        """Ask the brokers that coordinate the waiting questions now."""
        if not any(each.name == TRANSACTION_STATE for each in (*change.created, *change.changed, *change.deleted)):
            return
        for partition in self._queues.partitions(TRANSACTION_STATE):
            state = state_of(self._image, partition)
            if state is None or state.leader in (NO_LEADER, self._broker_id):
                self._spawn(self._route_again(self._queues.withdraw(partition)))
            else:
                self._queues.place(partition, state)

    async def _route_again(self, questions: Collection[_Asked]) -> None:
        async for asked in FairTurn(self._clock).over(questions):
            self._route(asked)

    def decide(
        self,
        transactional_id: str,
        by: ProducerEpoch,
        *,
        adds: bool,
        partitions: Collection[TopicPartition],
        answer: Callable[[Codes], object],
    ) -> None:
        """Verify or add partitions, at the request of any broker, as the coordinator of the transactional id.

        A partition that the image lacks is neither verified nor added: the image may be behind, and its producer tries
        again. Otherwise no marker could be sent to the partition.
        """
        known = [each for each in partitions if state_of(self._image, each) is not None]
        unknown = dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not known:
            answer(unknown)
            return

        def decided(decision: Decision) -> None:
            answer(unknown | dict.fromkeys(known, decision.error))

        if adds:
            self._coordinator.add_partitions(transactional_id, by, known, IMPLICIT_VERSION, decided)
            return
        try:
            answer(unknown | self._coordinator.verify(transactional_id, by, known))
        except ApiError as error:
            decided(Decision(error.code))

    def weight(self, item: _Asked) -> int:
        """Return the number of partitions in the question."""
        return len(item.partitions)

    def request(self, portions: Mapping[TopicPartition, Sequence[_Asked]]) -> AddPartitionsToTxnRequest:
        """Return one AddPartitionsToTxn request for the partitions of all given transactions."""
        asked = [each for portion in portions.values() for each in portion]
        return AddPartitionsToTxnRequest(transactions=[_transaction(*each.question, each.partitions) for each in asked])

    def codes(self, sent: Sequence[_Asked], answer: AddPartitionsToTxnResponse | None) -> dict[_Asked, Codes]:
        """Return the error codes for each question; the response lists them in the order of the request."""
        results = [] if answer is None else [_codes(each) for each in answer.results_by_transaction]
        return dict(zip(sent, results, strict=True)) if len(results) == len(sent) else {}

    def answered(
        self,
        broker_id: int,  # noqa: ARG002  # Any broker that answered was the coordinator.
        partition: TopicPartition,  # noqa: ARG002
        items: Sequence[_Asked],
        codes: Mapping[_Asked, Codes],
    ) -> None:
        """Give each waiting future its error codes."""
        for asked in items:
            asked.settle(codes.get(asked, {}))


def _transaction(transactional_id: str, by: ProducerEpoch, adds: bool, partitions: Collection[TopicPartition]) -> Any:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    return kind(
        transactional_id=transactional_id,
        producer_id=by.producer_id,
        producer_epoch=by.epoch,
        verify_only=not adds,
        topics=[kind.AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
    )


def _codes(result: AddPartitionsToTxnResponse.AddPartitionsToTxnResult) -> Codes:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
