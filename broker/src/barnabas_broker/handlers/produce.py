"""Produce (0), v3 to v13: checks the headers of batches, and appends the batches without copying them.

v9 is flexible; v13 replaces topic names by topic ids. With acks=all the response is sent when the high watermark has
passed every batch. With acks=0 there is no response, and an error closes the connection. The batches of a request that
has very many are appended in several turns of the event loop.

The response may wait for batches whose records must be checked: if the topic recompresses, is compacted or limits the
timestamps of records, or if `batch_trust` requires the check. The event loop checks small batches, and the helper
process larger ones. Batches that the client has no right to write are refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

import msgspec

from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import AskedTopicKey, Channel, GiveUp, TakesTurns, lacking, rights_of
from barnabas_broker.handlers.handler_environment import LEADER_ERRORS, HandlerEnvironment, current_leader
from barnabas_broker.handlers.large_responses import CloseConnection, SharedTurn
from barnabas_broker.handlers.pending_produce import (
    ACKS_ALL,
    REST,
    PendingProduce,
    ProduceInTurns,
    ProduceResults,
    append_in_transaction,
    check_unanswered,
    refused,
)
from barnabas_broker.replication.partition import ANY_ACKS, Partition
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.helper import Inspected
from barnabas_broker.storage.inspection import FIRST_HERE_MAX, RECORDS_HERE_MAX, BatchRefused, is_quick, must_inspect
from barnabas_broker.wire.produce import (
    ProduceBatch,
    ProduceRequest,
    ProduceResult,
    encode_produce_response,
    parse_produce,
)
from barnabas_broker.wire.record_batch import (
    TRANSACTIONAL_ATTRIBUTES,
    BatchHeader,
    Codec,
    TransactionalBatch,
    assign_max_timestamp,
    is_implausible,
    parse_header,
    validate_produced,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS
from barnabas_core.topic_partition import is_internal

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id with which Kafka's tools may write to internal topics."""
NO_ERROR: Final = 0
ZSTD_SINCE: Final = 7
"""The first version of Produce that accepts zstd (KIP-110)."""
INSPECTED_RECORDS_MAX: Final = 1000
"""The maximum number of records of one request that the event loop checks, which takes 1 to 2 ms; the helper process
checks further batches."""


class Appender(msgspec.Struct):
    """The appender of the batches of one Produce request, in their order.

    If a batch cannot be appended or acknowledged at once, the PendingProduce in `late` sends the response later.
    """

    environment: HandlerEnvironment
    channel: Channel
    request: ProduceRequest
    buffer: memoryview
    version: int
    correlation_id: int
    trust: ConnectionTrust
    now_ms: int
    inspected_records: int = 0
    late: PendingProduce | None = None
    refused_topics: frozenset[AskedTopicKey] = frozenset()
    """The topics that the client has no right to write."""

    def append_all(self) -> list[ProduceResult] | None:
        """Append or refuse each batch, and return the results in order.

        If a batch cannot be appended or acknowledged at once, return None; `late` then sends the response later.
        """
        rights = rights_of(self.environment, self.channel.client)
        if not rights.is_super:
            self._check_rights(rights)
        try:
            results: ProduceResults = list(map(self._append, self.request.batches, count()))
        except BaseException:  # Any error closes the connection, so the batches that still wait must not be appended.
            if self.late is not None:
                self.late.end()
            raise
        if self.late is None:
            return results  # type: ignore[return-value]  # none is None; a cast would cost a call
        self.late.begin(results)
        return None

    def _check_rights(self, rights: Rights) -> None:
        """Check Write on the topics, unless the client is known to have it on all of them."""
        writable, topics = rights.writable, self.request.topics
        for topic in topics:
            if (topic.topic_id or topic.name) not in writable:
                self.refused_topics = lacking(self.environment, rights, AclOperation.WRITE, topics)
                return

    async def append_in_turns(self, turn: SharedTurn, late: ProduceInTurns) -> None:
        """Append or refuse the batches in several turns of the event loop, and give the results to `late`.

        If the request times out, the rest of the batches is not appended. If the connection closes, `late` has ended.
        """
        try:
            await self._check_rights_in_turns(turn)
            for place, wanted in enumerate(self.request.batches):
                await turn.give_way()
                if not late.may_append(REST):
                    break
                self._append_one(wanted, place, late)
            self.channel.request_is_read()
            late.rest_is_appended()
        except CloseConnection as reason:
            self._close(late, str(reason))
        except BaseException:
            self._close(late, "the append of a batch failed with an unexpected error")
            raise

    async def _check_rights_in_turns(self, turn: SharedTurn) -> None:
        """Check Write on the topics, each with the rights that the client has in its turn."""
        environment, client, topics = self.environment, self.channel.client, self.request.topics
        if rights_of(environment, client).is_super:
            return
        refused: set[AskedTopicKey] = set()
        for first in range(0, len(topics), STEP_ELEMENTS):
            await turn.give_way()
            some = topics[first : first + STEP_ELEMENTS]
            refused |= lacking(environment, rights_of(environment, client), AclOperation.WRITE, some)
        self.refused_topics = frozenset(refused)

    def _append_one(self, wanted: ProduceBatch, place: int, late: ProduceInTurns) -> None:
        """Append or refuse one batch of a request that takes turns, and give the result to `late`, if it is known."""
        self.now_ms = self.environment.clock.now_ms()
        result = self._append(wanted, place)
        if result is not None:
            late.note(place, result)

    def _close(self, late: PendingProduce, reason: str) -> None:
        late.end()
        self.channel.close(reason)

    def _append(self, wanted: ProduceBatch, place: int) -> ProduceResult | None:
        topic, number, start, end = wanted
        if self.refused_topics and (topic.topic_id or topic.name) in self.refused_topics:
            return self.refused(place, ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        batch, partition = self.buffer[start:end], None
        try:
            partition = self.environment.replicas.lookup.find(topic.name, topic.topic_id, number)
            if self.request.acks not in partition.accepted_acks:
                self._check_allowed(partition)
            header = validate_produced(batch, partition.batch_bytes_max)
            if self.version < ZSTD_SINCE and header.compression == Codec.ZSTD:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd compression requires Produce v{ZSTD_SINCE} or later"
                )
            return self.append_checked(partition, batch, header, place)
        except TransactionalBatch:
            assert partition is not None
            return self._append_in_transaction(partition, batch, place)
        except ApiError as error:
            return self.refused(place, error)
        except StorageError as error:
            assert partition is not None
            return self.refused(place, self.environment.replicas.failures.storage_failed(partition, error))

    def _append_in_transaction(self, partition: Partition, batch: memoryview, place: int) -> ProduceResult | None:
        """Append a transactional batch, if the client has Write on the transactional id."""
        failures, transactional_id = self.environment.replicas.failures, self.request.transactional_id or ""
        rights = rights_of(self.environment, self.channel.client)
        if not rights.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return self.refused(place, ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        try:
            header = validate_produced(batch, partition.batch_bytes_max, TRANSACTIONAL_ATTRIBUTES)
            return append_in_transaction(self, partition, batch, header, place)
        except ApiError as error:
            return self.refused(place, error)
        except StorageError as error:
            return self.refused(place, failures.storage_failed(partition, error))

    def append_checked(
        self, partition: Partition, batch: memoryview, header: BatchHeader, place: int
    ) -> ProduceResult | None:
        """Append a batch, if necessary after a check; return None if the result waits for the check or followers."""
        if partition.inspects_records and must_inspect(partition.log.config, header):
            return self._inspect(partition, batch, header, place, RECORDS_HERE_MAX)
        if self.trust.doubted or is_implausible(header, self.now_ms):
            return self._inspect_doubted(partition, batch, header, place)
        return self._append_batch(partition, batch, header, place)

    def refused(self, place: int, error: ApiError) -> ProduceResult:
        """Return the result of a refused batch, with the current leader if another broker leads the partition."""
        topic, number, _, _ = self.request.batches[place]
        if error.code not in LEADER_ERRORS:
            return refused(number, error)
        image, listener_name = self.environment.image, self.channel.client.listener_name
        return refused(number, error, current_leader(image, listener_name, topic.name, topic.topic_id, number))

    def _append_batch(
        self, partition: Partition, batch: memoryview, header: BatchHeader, place: int
    ) -> ProduceResult | None:
        """Append the batch; return the result, or None if the result has to wait.

        With acks=all the result waits until the high watermark has passed the batch. With acks=1 the result waits only
        if the log must be synced first.
        """
        log, verification = partition.log, None if self.late is None else self.late.verifications.get(place)
        appended = partition.append_as_leader(batch, header, self.now_ms, verification)
        result = (
            partition.topic_partition.partition,
            NO_ERROR,
            appended.base_offset,
            appended.log_append_time_ms,
            log.log_start_offset,
            None,
        )
        end_offset = appended.end_offset
        if end_offset <= log.high_watermark:  # The batch is committed, so its result need not wait.
            return result
        acks = self.request.acks
        if not acks or (acks != ACKS_ALL and end_offset <= log.syncs.ack_end_offset(end_offset)):
            return result
        late = self.answer_later()
        late.wait_for(place, partition)

        def done(error: ApiError | None) -> None:
            late.complete(place, result if error is None else self.refused(place, error))

        partition.waits.wait(end_offset, done, log.high_watermark, all_replicas=acks == ACKS_ALL)
        return None

    def answer_later(self) -> PendingProduce:
        """Return the request's PendingProduce, which responds later; the first call creates it."""
        if self.late is None:
            self.late = PendingProduce(self.environment, self.channel, self.request, self.version, self.correlation_id)
        return self.late

    def answer_in_turns(self, turn: SharedTurn) -> ProduceInTurns:
        """Return the PendingProduce of a request that takes turns; it holds all batches."""
        self.late = late = ProduceInTurns(
            self.environment, self.channel, self.request, self.version, self.correlation_id, turn
        )
        return late

    def _check_allowed(self, partition: Partition) -> None:
        """Raise ApiError if acks is invalid, the topic is internal, or the partition cannot be written.

        A client with the client id ADMIN_CLIENT_ID may write to internal topics.
        """
        if self.request.acks not in ANY_ACKS:
            raise ApiError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self.request.acks} is invalid; allowed are -1, 0 and 1"
            )
        topic = partition.topic_partition.topic
        if is_internal(topic) and self.trust.client_id != ADMIN_CLIENT_ID:
            message = f"only brokers, and clients with the client id {ADMIN_CLIENT_ID}, may write to {topic}"
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        partition.check_writable(all_replicas=self.request.acks == ACKS_ALL)

    def _inspect_doubted(
        self, partition: Partition, batch: memoryview, header: BatchHeader, place: int
    ) -> ProduceResult | None:
        if (
            self.environment.inspector.is_busy
            and not is_quick(partition.log.config, header, FIRST_HERE_MAX)
            and self.trust.may_pass(header, self.now_ms)
        ):
            return self._append_batch(partition, batch, header, place)
        self.trust.checked(header)
        return self._inspect(partition, batch, header, place, FIRST_HERE_MAX)

    def _inspect(
        self, partition: Partition, batch: memoryview, header: BatchHeader, place: int, records_max: int
    ) -> ProduceResult | None:
        """Check the records of a batch, and append it; return the result, or None if the result has to wait."""
        config, inspector = partition.log.config, self.environment.inspector
        if self.inspected_records < INSPECTED_RECORDS_MAX and is_quick(config, header, records_max):
            self.inspected_records += header.record_count
            with self._counting_invalid(partition):
                inspected = inspector.inspect_now(bytes(batch), config)
            if inspected is not None:
                return self._append_inspected(partition, batch, header, inspected, place)
        copy = inspector.kept.keep(batch)
        late = self.answer_later()
        late.hold(place, partition)
        self.environment.attempt(self._append_later(partition, copy, late, place))
        return None

    def _append_inspected(
        self, partition: Partition, batch: memoryview, header: BatchHeader, inspected: Inspected, place: int
    ) -> ProduceResult | None:
        """Append a batch that was checked or recompressed.

        The max timestamp in the batch header is set to the largest timestamp of the records.
        """
        header_ms, true_ms = header.max_timestamp_ms, inspected.max_timestamp_ms
        if inspected.batch is not None:
            batch = memoryview(bytearray(inspected.batch))
            header = parse_header(batch, 0)
        elif header_ms != true_ms:
            header = assign_max_timestamp(batch, 0, header, true_ms)
        if header_ms != true_ms:
            self.trust.corrected(partition.topic_partition.topic, header_ms, true_ms)
        return self._append_batch(partition, batch, header, place)

    async def _append_later(self, partition: Partition, batch: bytes, late: PendingProduce, place: int) -> None:
        result: ProduceResult | None = None
        try:
            with self._counting_invalid(partition):
                inspected = await self.environment.inspector.inspect(batch, partition.log.config)
            if late.may_append(place):
                with self.using_again(partition, place) as current:
                    header = parse_header(batch, 0)
                    result = self._append_inspected(current, memoryview(bytearray(batch)), header, inspected, place)
        except ApiError as error:
            result = self.refused(place, error)
        finally:
            self.environment.inspector.kept.release(batch)
        if result is not None:
            late.complete(place, result)

    @contextmanager
    def using_again(self, partition: Partition, place: int) -> Iterator[Partition]:
        """Return a context manager that looks up the partition again after the batch has waited for a check.

        The context manager raises ApiError if the batch must not be appended any more. It also raises ApiError instead
        of a StorageError in the `with` block.
        """
        topic, number, _, _ = self.request.batches[place]
        with self.environment.replicas.failures.using(topic.name, number, topic.topic_id) as current:
            if current.topic_id != partition.topic_id:
                message = f"topic {topic.name} was deleted and created again while the batch was checked"
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
            current.check_writable(all_replicas=self.request.acks == ACKS_ALL)
            yield current

    @contextmanager
    def _counting_invalid(self, partition: Partition) -> Iterator[None]:
        try:
            yield
        except BatchRefused as refusal:
            if refusal.is_broken:
                self.trust.refused(partition.topic_partition.topic, str(refusal))
            raise


BATCHES_AT_ONCE: Final = 500
"""The maximum number of batches, and of topics, in a request that is handled in one turn, which takes about 5 ms."""


def handle(
    environment: HandlerEnvironment,
    channel: Channel,
    version: int,
    correlation_id: int,
    buffer: memoryview,
    body_start: int,
    end: int,
) -> GiveUp | None:
    """Append every batch, and respond with a result for each.

    Raises CloseConnection if a batch with acks=0 was refused. A batch with acks=0 is appended even if the client
    disconnects while the batch waits.
    """
    request = parse_produce(buffer, body_start, end, version)
    trust = channel.trust
    if trust is None:
        trust = channel.trust = environment.trust.of_connection(channel.client.client_id or "")
    now_ms = environment.clock.now_ms()
    appender = Appender(environment, channel, request, buffer, version, correlation_id, trust, now_ms)
    if request.only_topic_id is None and max(len(request.batches), len(request.topics)) > BATCHES_AT_ONCE:
        return _append_in_turns(appender)
    results = appender.append_all()
    if results is None:
        return appender.late.end if appender.late is not None and request.acks else None
    if request.acks:
        channel.answer_soon(encode_produce_response(correlation_id, version, request, results))
    else:
        check_unanswered(results)
    return None


def _append_in_turns(appender: Appender) -> GiveUp:
    """Begin to append the batches; the connection reads its next request when the last one is appended."""
    turn = appender.channel.turn
    if turn is None:
        raise TakesTurns(appender.environment.answers)
    late = appender.answer_in_turns(turn)
    appender.environment.attempt(appender.append_in_turns(turn, late))
    return late.end
