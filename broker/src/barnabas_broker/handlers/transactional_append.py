"""The append of a transactional batch.

The first batch of a transaction in a partition waits until the transaction coordinator confirms that the partition is
in the transaction. From Produce v12 on the coordinator also adds the partition, if the cluster's transaction.version is
2 (KIP-890).
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.pending_produce import PendingProduce
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.produce import ProduceRequest, ProduceResult
from barnabas_broker.wire.record_batch import BatchHeader, parse_header
from barnabas_core.errors import ApiError, ErrorCode

ABORTABLE_SINCE: Final = 11
"""The first Produce version whose clients know TRANSACTION_ABORTABLE."""
ADDS_SINCE: Final = 12

_TRY_AGAIN: Final[Mapping[ErrorCode, ErrorCode]] = dict.fromkeys(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # The coordinator's image is behind.
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""The retriable error that a producer gets in place of an error of the transaction coordinator."""


class BatchAppender(Protocol):
    """The appender of one request's batches (`appender.Appender`)."""

    environment: HandlerEnvironment
    request: ProduceRequest
    version: int

    def answer_later(self) -> PendingProduce:
        """Return the request's PendingProduce, which responds later; the first call creates it."""
        ...

    def append_checked(
        self, partition: Partition, batch: memoryview, header: BatchHeader, place: int
    ) -> ProduceResult | None:
        """Append a batch, if necessary after a check of its records. Return None if the result has to wait."""
        ...

    def using_again(self, partition: Partition, place: int) -> AbstractContextManager[Partition]:
        """Return a context manager that looks up the partition again after the batch has waited for a check.

        The context manager raises ApiError if the batch must not be appended any more. It also raises ApiError instead
        of a StorageError in the `with` block.
        """
        ...

    def refused(self, place: int, error: ApiError) -> ProduceResult:
        """Return the result of a refused batch, with the current leader if another broker leads the partition."""
        ...


def append_in_transaction(
    appender: BatchAppender, partition: Partition, batch: memoryview, header: BatchHeader, place: int
) -> ProduceResult | None:
    """Append a transactional batch; return the result, or None if the result has to wait.

    As in Kafka, the coordinator is asked before the sequence is checked, so a batch of no transaction gets the
    coordinator's error, even a duplicate. Raises ApiError if the batch is refused, and StorageError if the disk fails.
    """
    if appender.request.transactional_id is None:
        message = "the request has a transactional batch, but no transactional id"
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    producers = partition.log.producers
    if producers.is_in_transaction(header.producer_id, header.producer_epoch):
        return appender.append_checked(partition, batch, header, place)
    adds = appender.version >= ADDS_SINCE and appender.environment.gate.takes_in
    gate, by = appender.environment.gate, ProducerEpoch(header.producer_id, header.producer_epoch)
    copy = gate.kept.keep(batch)
    verification = producers.verifications.begin(*by, has_own_epoch=adds)
    answer = gate.ask(appender.request.transactional_id, by, partition.topic_partition, adds=adds)
    late = appender.answer_later()
    late.hold(place, partition, partial(_give_up, answer), verification)
    appender.environment.attempt(_append_verified(appender, partition, copy, late, place, answer))
    return None


def _give_up(answer: asyncio.Future[ErrorCode]) -> None:
    """End the wait for the coordinator, so that the copy of the batch is released."""
    if not answer.done():
        answer.set_result(ErrorCode.REQUEST_TIMED_OUT)


async def _append_verified(
    appender: BatchAppender,
    partition: Partition,
    batch: bytes,
    late: PendingProduce,
    place: int,
    answer: asyncio.Future[ErrorCode],
) -> None:
    header = parse_header(batch, 0)
    result: ProduceResult | None = None
    try:
        await _verify(appender, partition, answer)
        if late.may_append(place):
            with appender.using_again(partition, place) as current:
                result = appender.append_checked(current, memoryview(bytearray(batch)), header, place)
    except ApiError as error:
        result = appender.refused(place, error)
    finally:
        appender.environment.gate.kept.release(batch)
    if result is not None:
        late.complete(place, result)


async def _verify(appender: BatchAppender, partition: Partition, answer: asyncio.Future[ErrorCode]) -> None:
    """Raise ApiError unless the coordinator confirms that the batch's partition is in the transaction."""
    code = await answer
    if code is not ErrorCode.NONE:
        error = _produce_error(code, appender.version)
        raise ApiError(
            error,
            f"the coordinator of transactional id {appender.request.transactional_id} did not confirm that "
            f"{partition.topic_partition} is in the transaction: {code.name}",
        )


def _produce_error(code: ErrorCode, version: int) -> ErrorCode:
    """Return the Produce error for an error of the transaction coordinator."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return _TRY_AGAIN.get(code, code)
