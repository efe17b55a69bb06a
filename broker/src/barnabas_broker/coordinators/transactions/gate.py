"""The verification of partitions by the coordinator of a transactional id, on this broker or on another broker.

The coordinator checks whether partitions are in the open transaction, or adds them to the transaction. While a request
for a producer is in flight, further partitions of the same producer wait, and the next request contains all of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas_broker.coordinators.transactions.broker_queues import BrokerQueues, LinkEnvironment
from barnabas_broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas_broker.coordinators.transactions.decisions import Decision
from barnabas_broker.coordinators.transactions.open_transactions import OpenTransactions
from barnabas_broker.metadata.features import transaction_version
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_broker.wire.transaction_markers import ProducerEpoch
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.java_hash import coordinator_partition
from barnabas_core.topic_name import TRANSACTION_STATE
from barnabas_core.topic_partition import TopicPartition

_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.02
"""The pause in seconds before the coordinator is asked again, while the producer's previous transaction is ending."""

IMPLICIT_VERSION: Final = 2
"""The first transaction.version in which a Produce adds its partitions to the transaction."""

Codes = dict[TopicPartition, ErrorCode]


class _Question(NamedTuple):
    transactional_id: str
    by: ProducerEpoch
    adds: bool


class _Asked(NamedTuple):
    """The partitions to verify or add at another broker, with the future that receives their error codes."""

    question: _Question
    partitions: Collection[TopicPartition]
    answer: asyncio.Future[Codes]


class TransactionGate:
    """The check, before a transactional append, whether the partition is in the open transaction of the producer.

    The partition's leader asks the coordinator of the transactional id, which is on this or another broker.
    """

    response = "AddPartitionsToTxnResponse"
    version = 5

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
        self._waiting: dict[_Question, list[tuple[TopicPartition, asyncio.Future[ErrorCode]]]] = {}
        self._queues: BrokerQueues[_Asked] = BrokerQueues(environment, self)
        self.open_transactions = OpenTransactions(environment, image)

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._queues.close()
        self.open_transactions.queues.close()

    @property
    def takes_in(self) -> bool:
        """True if the cluster's transaction.version lets a Produce add its partitions to the transaction."""
        return transaction_version(self._image.features) >= IMPLICIT_VERSION

    async def ask(
        self, transactional_id: str, by: ProducerEpoch, partition: TopicPartition, *, adds: bool
    ) -> ErrorCode:
        """Return NONE if the partition is in the producer's open transaction, else an error code.

        If `adds` is True, the coordinator adds the partition to the transaction first. CONCURRENT_TRANSACTIONS is
        returned only after several attempts.
        """
        question = _Question(transactional_id, by, adds)
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(question)
        if waiting is None:
            self._waiting[question] = [(partition, answer)]
            self._spawn(self._ask_all(question))
        else:
            waiting.append((partition, answer))
        return await answer

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
        document = self._image.topics.get(TRANSACTION_STATE)
        if document is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        number = coordinator_partition(question.transactional_id, len(document.partitions))
        leader = document.partitions[number].leader
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        if leader < 0:
            answer.set_result(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif leader == self._broker_id:
            transactional_id, by, adds = question
            self.decide(transactional_id, by, adds=adds, partitions=partitions, answer=partial(_settle, answer))
        else:
            self._queues.put(leader, _Asked(question, partitions, answer))
        return await answer

    def decide(
        self,
        transactional_id: str,
        by: ProducerEpoch,
        *,
        adds: bool,
        partitions: Collection[TopicPartition],
        answer: Callable[[Codes], object],
    ) -> None:
        """Verify or add partitions, at the request of any broker, as the coordinator of the transactional id."""

        def decided(decision: Decision) -> None:
            answer(dict.fromkeys(partitions, decision.error))

        if adds:
            self._coordinator.add_partitions(transactional_id, by, partitions, IMPLICIT_VERSION, decided)
            return
        try:
            answer(self._coordinator.verify(transactional_id, by, partitions))
        except ApiError as error:
            decided(Decision(error.code))

    def request(self, items: Sequence[_Asked]) -> AddPartitionsToTxnRequest:
        """Return one AddPartitionsToTxn request for the partitions of all given transactions."""
        return AddPartitionsToTxnRequest(transactions=[_transaction(*item.question, item.partitions) for item in items])

    def answered(self, items: Sequence[_Asked], answer: AddPartitionsToTxnResponse | None) -> None:
        """Give each waiting future its error codes; the response lists the transactions in the order of the request."""
        results = [] if answer is None else [_codes(each) for each in answer.results_by_transaction]
        if len(results) != len(items):
            results = [{} for _ in items]
        for item, codes in zip(items, results, strict=True):
            _settle(item.answer, codes)


def _settle(answer: asyncio.Future[Codes], codes: Codes) -> None:
    if not answer.done():
        answer.set_result(codes)


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
