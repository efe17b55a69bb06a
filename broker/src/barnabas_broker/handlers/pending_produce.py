"""A Produce request that waits for the results of some batches; the request's Appender adds these results.

The argument `place` of the methods is the index of a batch in the request. The first batch of a transaction in a
partition waits until the transaction coordinator confirms that the partition is in the transaction. From Produce v12 on
the coordinator also adds the partition, if the cluster's transaction.version is 2 (KIP-890).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Final, Protocol

from barnabas_broker.handlers.channel import Channel, GiveUp
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import CloseConnection, SharedTurn
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.inspection import BatchRefused
from barnabas_broker.storage.producer_state import Verification
from barnabas_broker.wire.framing import CurrentLeader, Part
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.produce import (
    ProduceRefusal,
    ProduceRequest,
    ProduceResult,
    encode_produce_response,
    produce_response_in_steps,
)
from barnabas_broker.wire.record_batch import BatchHeader, parse_header
from barnabas_core.clock import Cancellable
from barnabas_core.errors import ApiError, ErrorCode

ACKS_ALL: Final = -1
CHECK_MS_MIN: Final = 10_000
"""The time in ms for which a batch may wait to be appended, even if the request's timeout is shorter.

The timeout of a request is for the replication of its batches, as in Kafka. It begins once they are appended.
"""

REST: Final = -1
"""The index that stands for all batches that later turns of the event loop append."""

ProduceResults = list[ProduceResult | None]
"""The results of a request, in the order of its batches; None means that the result is not known yet."""


def refused(number: int, error: ApiError, leader: CurrentLeader | None = None) -> ProduceResult:
    """Return the result of a refused batch."""
    errors = error.record_errors if isinstance(error, BatchRefused) else ()
    return number, error.code, -1, -1, -1, ProduceRefusal(error.message, errors, leader)


def check_unanswered(results: list[ProduceResult]) -> None:
    """Raise CloseConnection if a batch of a request with acks=0 was refused, because there is no response."""
    for _, error, _, _, _, refusal in results:
        if refusal is not None:
            raise CloseConnection(
                f"a Produce request with acks=0 failed with {ErrorCode(error).name}: {refusal.message}"
            )


class PendingProduce:
    """A Produce request that is answered when all results are known, or when the request times out.

    While a batch waits to be appended, the connection reads no further requests, so that batches keep their order.
    If it waits longer than CHECK_MS_MIN and the timeout, batches that still wait are not appended any more.
    """

    __slots__ = (
        "_channel",
        "_correlation_id",
        "_partitions",
        "_read_on",
        "_request",
        "_results",
        "_send",
        "_timer",
        "_timers",
        "_unappended",
        "_version",
        "verifications",
    )

    def __init__(
        self,
        environment: HandlerEnvironment,
        channel: Channel,
        request: ProduceRequest,
        version: int,
        correlation_id: int,
    ):
        self._channel = channel
        self._version = version
        self._correlation_id = correlation_id
        self._send = channel.defer(reads_on=True)
        self._read_on: Callable[[list[Part]], None] | None = None
        self._request = request
        self._results: ProduceResults = []
        self._partitions: dict[int, Partition | None] = {}
        """The partition of each batch without a result, by the index of the batch in the request."""
        self._unappended: dict[int, GiveUp] = {}
        """The functions to call if a batch will not be appended, by the indexes of the batches that still may be."""
        self.verifications: dict[int, Verification] = {}
        """The verifications that the appends of these batches need, by the indexes of the batches."""
        self._timers = environment.timers
        self._timer: Cancellable | None = self._timers.call_later(request.timeout_ms / 1000, self._expire)

    def begin(self, results: ProduceResults) -> None:
        """Store the results known so far; a batch without a result waits to be appended, or for its replication."""
        self._results = results

    def hold(
        self,
        place: int,
        partition: Partition | None,
        give_up: GiveUp = lambda: None,
        verification: Verification | None = None,
    ) -> None:
        """Note that the batch at index `place` in the request is not appended yet; hold its `verification` until then.

        The partition is None for the index REST.
        The connection reads no further request until the batch is appended or refused. `give_up` is called if the
        request times out, or its connection closes, before that. A batch may be held again for the check of its
        records, and keeps its verification.
        """
        if not self._unappended:
            self._expire_in(max(self._request.timeout_ms, CHECK_MS_MIN))
        self._partitions[place] = partition
        self._unappended[place] = give_up
        if verification is not None:
            self.verifications[place] = verification
        self._read_on = self._read_on or self._channel.defer()

    def may_append(self, place: int) -> bool:
        """True if the batch may still be appended: the request has not timed out, and its connection is open."""
        return place in self._unappended

    def wait_for(self, place: int, partition: Partition) -> None:
        """Mark the batch with the index `place` as appended, but without a result yet."""
        self._partitions[place] = partition
        if self._unappended:
            self._settle(place)

    def complete(self, place: int, result: ProduceResult) -> None:
        """Store the result of the batch with the index `place`, and respond if no result is missing any more.

        A result after the timeout has no effect.
        """
        if self._timer is None:
            return
        self._results[place] = result
        del self._partitions[place]
        if self._unappended:
            self._settle(place)
        if not self._partitions:
            self._timer.cancel()
            self._finish()

    def end(self) -> None:
        """Drop the request: send no answer, and append no further batch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._give_up_unappended()

    def _give_up_unappended(self) -> None:
        self.verifications.clear()
        unappended, self._unappended = self._unappended, {}
        for give_up in unappended.values():
            give_up()

    def _settle(self, place: int) -> None:
        """Mark the batch with the index `place` as appended or refused.

        If no batch of the request waits to be appended any more, the connection reads further requests, and the
        request's timeout begins.
        """
        self._unappended.pop(place, None)
        self.verifications.pop(place, None)
        if not self._unappended:
            self._expire_in(self._request.timeout_ms)
        self._read_on_unless_held()

    def _expire_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._timers.call_later(delay_ms / 1000, self._expire)

    def _read_on_unless_held(self) -> None:
        if self._read_on is not None and not self._unappended:
            read_on, self._read_on = self._read_on, None
            read_on([])

    def _expire(self) -> None:
        for place, result in enumerate(self._results):
            if result is None:
                self._results[place] = refused(self._request.batches[place][1], self._why_late(place))
        self._finish()

    def _why_late(self, place: int) -> ApiError:
        partition = self._partitions.get(place)
        if partition is None or place in self._unappended:
            message = "the batch was not appended, because its check or earlier batches took too long; try again"
        elif self._request.acks != ACKS_ALL:
            message = (
                "the batch was appended, but the flush that flush.messages requires did not end before the timeout"
            )
        elif partition.isr_size < partition.isr_size_min:
            in_sync = (
                f"only {partition.isr_size} replicas are in sync, but min.insync.replicas is {partition.isr_size_min}"
            )
            return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"the batch was appended, but {in_sync}")
        else:
            message = "the batch was appended, but not replicated to all in-sync replicas before the timeout"
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, message)

    def _finish(self) -> None:
        self._timer = None
        self._give_up_unappended()
        results: list[ProduceResult] = self._results  # type: ignore[assignment]  # none is None any more
        parts: list[Part] = []
        try:
            if self._request.acks:
                parts = [encode_produce_response(self._correlation_id, self._version, self._request, results)]
            else:
                check_unanswered(results)
            self._send(parts)
            self._read_on_unless_held()
        except CloseConnection as reason:
            self._channel.close(str(reason))


class ProduceInTurns(PendingProduce):
    """A Produce request whose batches are appended, and whose response is encoded, in several turns of the event loop.

    The connection reads no further request until `rest_is_appended` is called.
    """

    __slots__ = ("_attempt", "_turn")

    def __init__(
        self,
        environment: HandlerEnvironment,
        channel: Channel,
        request: ProduceRequest,
        version: int,
        correlation_id: int,
        turn: SharedTurn,
    ):
        super().__init__(environment, channel, request, version, correlation_id)
        self._attempt = environment.attempt
        self._turn = turn
        self._results = [None] * len(request.batches)
        self.hold(REST, None)

    def note(self, place: int, result: ProduceResult) -> None:
        """Store the result of a batch that had not to wait, while later batches are not appended yet."""
        self._results[place] = result

    def rest_is_appended(self) -> None:
        """Let the connection read on after the last append, also if the request has timed out.

        Respond if no result is missing.
        """
        if self._timer is None:
            self._read_on_unless_held()
            return
        del self._partitions[REST]
        self._settle(REST)
        if not self._partitions and self._timer is not None:
            self._timer.cancel()
            self._finish()

    def _finish(self) -> None:
        if not self._request.acks:
            super()._finish()
            return
        self._timer = None
        self._give_up_unappended()
        self._attempt(self._answer_in_turns())
        if REST not in self._partitions:  # Until then the connection keeps the bytes, and would read them again.
            self._read_on_unless_held()

    async def _answer_in_turns(self) -> None:
        results: list[ProduceResult] = self._results  # type: ignore[assignment]  # none is None any more
        with suppress(CloseConnection):  # The connection has closed.
            steps = produce_response_in_steps(self._correlation_id, self._version, self._request, results)
            self._send([await self._turn.run(steps)])


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
