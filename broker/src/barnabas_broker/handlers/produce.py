"""Produce (0), v3 to v13. Batches are checked by their headers and appended as they are; nothing is copied.

v9 is flexible, v13 names topics by id. acks=all is answered when the high watermark is past every batch. Looked into
are the batches of topics that recompress, compact or limit how old records may be, and those that are not trusted
(`batch_trust`): small ones at once, others in the helper process, and that answer comes later, too. acks=0 gets no
answer; when it fails the connection is closed, which is all the client would notice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, cast

from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import Channel
from barnabas_broker.handlers.close_connection import CloseConnection
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.partition import ANY_ACKS, Partition
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.helper.requests import Inspected
from barnabas_broker.storage.inspection.batch_inspection import must_inspect
from barnabas_broker.storage.inspection.inspector import (
    BYTES_IN_FLIGHT_MAX,
    KEPT_BYTES_MAX,
    PRECAUTION_S_MAX,
    RECORDS_HERE_MAX,
    SELDOM_HERE_MAX,
    BatchRefused,
    CannotInspect,
    is_quick,
)
from barnabas_broker.wire.compression import Codec
from barnabas_broker.wire.parts import Part
from barnabas_broker.wire.plausibility import is_implausible
from barnabas_broker.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    encode_produce_response,
    parse_produce,
)
from barnabas_broker.wire.record_batch import BatchHeader, assign_max_timestamp, parse_header, validate_produced
from barnabas_core.clock import Cancellable
from barnabas_core.errors import ApiError, ErrorCode

ACKS_ALL: Final = -1
NO_ERROR: Final = 0
ZSTD_SINCE: Final = 7
"""Of Produce; clients that do not know the codec do not know this version either (KIP-110)."""
LOOKED_AT_MAX: Final = 1000
"""Records of one request on the loop, 1 to 2 ms; the other batches go to the helper process."""

ProduceResults = list[ProduceResult | None]
"""Of one topic; None is not known yet."""
TopicAnswers = list[tuple[ProduceTopic, list[ProduceResult]]]


def handle(
    environment: HandlerEnvironment,
    channel: Channel,
    version: int,
    correlation_id: int,
    buffer: memoryview,
    body_start: int,
    end: int,
) -> None:
    """Append every batch, then answer with a result for each; CloseConnection when acks=0 and one failed."""
    request = parse_produce(buffer, body_start, end, version)
    appender = _Appender(environment, buffer, request, channel, version, correlation_id)
    answers = appender.append_all()
    if answers is None:
        return
    if request.acks:
        channel.respond([encode_produce_response(correlation_id, version, answers)])
    else:
        _check_unanswered(answers)


def _check_unanswered(answers: TopicAnswers) -> None:
    """With acks=0 nobody hears of errors: the connection is closed, so that the client at least looks again."""
    for _, results in answers:
        for _, error, _, _, _, message, _ in results:
            if error:
                raise CloseConnection(f"acks=0 and {ErrorCode(error).name}: {message}")


class _PendingProduce:
    """A request of which some results are not known yet: the answer, once they are or its time is up."""

    __slots__ = (
        "_acks",
        "_answers",
        "_channel",
        "_correlation_id",
        "_partitions",
        "_read_on",
        "_respond",
        "_timer",
        "_version",
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
        self._acks = request.acks
        self._version = version
        self._correlation_id = correlation_id
        self._respond = channel.defer(reads_on=True)
        self._read_on: Callable[[list[Part]], None] | None = None
        self._answers: list[tuple[ProduceTopic, ProduceResults]] = []
        self._partitions: dict[tuple[int, int], Partition] = {}
        self._timer: Cancellable | None = environment.timers.call_later(request.timeout_ms / 1000, self._expire)

    def wait_for(self, place: tuple[int, int], partition: Partition) -> None:
        """The result at `place`, (topic, partition) as they come in the request, comes later."""
        self._partitions[place] = partition

    def mute(self) -> None:
        """Nothing of this client is appended before all of this request is: it keeps the order of its batches."""
        self._read_on = self._read_on or self._channel.defer()

    def begin(self, answers: list[tuple[ProduceTopic, ProduceResults]]) -> None:
        """All is appended or on its way; these are the results so far."""
        self._answers = answers

    def end(self) -> None:
        """There will be no answer; results that come change nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def complete(self, place: tuple[int, int], result: ProduceResult) -> None:
        """Take the result; what comes after the time was up changes nothing."""
        if self._timer is None:
            return
        topic, index = place
        self._answers[topic][1][index] = result
        del self._partitions[place]
        if not self._partitions:
            self._timer.cancel()
            self._finish()

    def _expire(self) -> None:
        for (topic, index), partition in self._partitions.items():
            self._answers[topic][1][index] = refused(partition.topic_partition.partition, self._why_late(partition))
        self._finish()

    def _why_late(self, partition: Partition) -> ApiError:
        if self._acks != ACKS_ALL:
            message = "appended, but not synced as flush.messages asks in the time that the request allows"
            return ApiError(ErrorCode.REQUEST_TIMED_OUT, message)
        if partition.isr_size < partition.isr_size_min:
            in_sync = f"only {partition.isr_size} replicas are in sync; {partition.isr_size_min} are wanted"
            return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"appended, but {in_sync}")
        message = "the records were not replicated in the time that the request allows"
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, message)

    def _finish(self) -> None:
        self._timer = None
        answers = cast("TopicAnswers", self._answers)
        try:
            if not self._acks:
                _check_unanswered(answers)
            parts = [encode_produce_response(self._correlation_id, self._version, answers)] if self._acks else []
            self._respond([*parts])
            if self._read_on is not None:
                self._read_on([])
        except CloseConnection as reason:
            self._channel.close(str(reason))


class _Appender:
    """Appends the batches of one request, one after the other."""

    __slots__ = (
        "_acks",
        "_buffer",
        "_environment",
        "_is_before_zstd",
        "_late_answer",
        "_looked_at",
        "_now_ms",
        "_replicas",
        "_request",
        "_trust",
        "late",
    )

    def __init__(
        self,
        environment: HandlerEnvironment,
        buffer: memoryview,
        request: ProduceRequest,
        channel: Channel,
        version: int,
        correlation_id: int,
    ) -> None:
        self._environment = environment
        self._replicas = environment.replicas
        self._buffer = buffer
        self._request = request
        self._acks = request.acks
        self._now_ms = environment.clock.now_ms()
        self._trust = channel.trust or _no_trust_yet(environment, channel)
        self._looked_at = 0
        self._is_before_zstd = version < ZSTD_SINCE
        self._late_answer = (environment, channel, request, version, correlation_id)
        self.late: _PendingProduce | None = None

    def append_all(self) -> TopicAnswers | None:
        """The results, or None when they come later."""
        try:
            answers = [
                (topic, [self._append(topic, each, (number, index)) for index, each in enumerate(topic.partitions)])
                for number, topic in enumerate(self._request.topics)
            ]
        except BaseException:  # A bug, which costs this connection. What is called later must not meet half a request.
            if self.late is not None:
                self.late.end()
            raise
        if self.late is None:
            return answers  # type: ignore[return-value]  # none is None; a cast would cost a call
        self.late.begin(answers)
        return None

    def _append(self, topic: ProduceTopic, wanted: ProducePartition, place: tuple[int, int]) -> ProduceResult | None:
        """The result for one partition; None when it comes later."""
        number, start, end = wanted
        partition = None
        try:
            partition = self._replicas.lookup.find(topic.name, topic.topic_id, number)
            if self._acks not in partition.accepted_acks:
                self._refuse(partition)
            header = validate_produced(self._buffer, start, end, partition.batch_bytes_max)
            if self._is_before_zstd and header.compression == Codec.ZSTD:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd; Produce v{ZSTD_SINCE} is the first with it"
                )
            batch = self._buffer[start:end]
            must = partition.inspects_records and must_inspect(partition.log.config, header)
            if must or self._trust.doubts(partition.topic_partition.topic, header, self._now_ms):
                return self._look_into(partition, batch, header, place, must=must)
            return self._append_batch(partition, batch, header, place)
        except ApiError as error:
            return refused(number, error)
        except StorageError as error:
            assert partition is not None
            return refused(number, self._replicas.failures.storage_failed(partition, error))

    def _append_batch(
        self, partition: Partition, batch: memoryview, header: BatchHeader, place: tuple[int, int]
    ) -> ProduceResult | None:
        """Appended; with acks=all the result comes when the high watermark is past the batch.

        With acks=1 at once, unless the topic's `flush.messages` want it synced first.
        """
        offset, append_time_ms, _ = partition.append_as_leader(batch, header, self._now_ms)
        number = partition.topic_partition.partition
        result = (number, NO_ERROR, offset, append_time_ms, partition.log_start_offset, None, ())
        end_offset = offset + header.last_offset_delta + 1
        is_for_all = self._acks == ACKS_ALL
        if end_offset <= (partition.high_watermark if is_for_all else partition.log.ack_end_offset) or not self._acks:
            return result
        late = self._wait(place, partition)

        def done(error: ApiError | None) -> None:
            late.complete(place, result if error is None else refused(number, error))

        partition.when_committed(end_offset, done, all_replicas=is_for_all)
        return None

    def _wait(self, place: tuple[int, int], partition: Partition) -> _PendingProduce:
        late = self.late = self.late or _PendingProduce(*self._late_answer)
        late.wait_for(place, partition)
        return late

    def _refuse(self, partition: Partition) -> None:
        if self._acks not in ANY_ACKS:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks}; -1, 0 and 1 are allowed")
        partition.check_writable(all_replicas=self._acks == ACKS_ALL)

    @property
    def _kept_bytes_max(self) -> int:
        """Batches that wait count as requests that wait do, from a bound of their own."""
        queued_bytes_max = self._environment.config.queued_max_request_bytes
        return queued_bytes_max if queued_bytes_max > 0 else KEPT_BYTES_MAX

    def _look_into(
        self, partition: Partition, batch: memoryview, header: BatchHeader, place: tuple[int, int], *, must: bool
    ) -> ProduceResult | None:
        """Small batches here, as long as there are few in the request; all others off the loop, the connection mute."""
        config, inspector = partition.log.config, self._environment.inspector
        if self._looked_at < LOOKED_AT_MAX and is_quick(config, header, RECORDS_HERE_MAX if must else SELDOM_HERE_MAX):
            self._looked_at += header.record_count
            with self._telling_untrue(partition):
                inspected = inspector.inspect_now(bytes(batch), config)
            if inspected is not None:
                return self._append_inspected(partition, batch, header, inspected, place)
        must = must or is_implausible(header, self._now_ms)
        kept_bytes_max = self._kept_bytes_max
        copy = inspector.keep(batch, kept_bytes_max if must else min(kept_bytes_max, BYTES_IN_FLIGHT_MAX))
        if copy is not None:
            late = self._wait(place, partition)
            late.mute()
            self._environment.attempt(self._append_later(partition, copy, late, place, must=must))
            return None
        if must:
            message = f"{kept_bytes_max} bytes of batches wait to be looked into; try again"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, message)
        return self._append_batch(partition, batch, header, place)

    def _append_inspected(
        self,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        inspected: Inspected,
        place: tuple[int, int],
    ) -> ProduceResult | None:
        """As Kafka does it: the largest timestamp is that of the records, whatever the producer said."""
        told_ms, true_ms = header.max_timestamp_ms, inspected.max_timestamp_ms
        if inspected.batch is not None:
            batch = memoryview(bytearray(inspected.batch))
            header = parse_header(batch, 0)
        elif told_ms != true_ms:
            header = assign_max_timestamp(batch, 0, header, true_ms)
        if told_ms != true_ms:
            self._trust.corrected(partition.topic_partition.topic, told_ms, true_ms)
        return self._append_batch(partition, batch, header, place)

    async def _append_later(
        self, partition: Partition, batch: bytes, late: _PendingProduce, place: tuple[int, int], *, must: bool
    ) -> None:
        name, number = partition.topic_partition
        header = parse_header(batch, 0)
        result: ProduceResult | None
        try:
            with self._telling_untrue(partition):
                inspected = await self._inspected(partition, batch, header, must=must)
            with self._replicas.failures.using(name, number) as current:
                current.check_writable(all_replicas=self._acks == ACKS_ALL)
                result = self._append_inspected(current, memoryview(bytearray(batch)), header, inspected, place)
        except ApiError as error:
            result = refused(number, error)
        finally:
            self._environment.inspector.release(batch)
        if result is not None:
            late.complete(place, result)

    async def _inspected(self, partition: Partition, batch: bytes, header: BatchHeader, *, must: bool) -> Inspected:
        """Without a helper a batch that is looked into to be on the safe side is taken as its header has it."""
        try:
            patience_s = None if must else PRECAUTION_S_MAX
            return await self._environment.inspector.inspect(batch, partition.log.config, patience_s)
        except CannotInspect:
            if must:
                raise
            return Inspected(None, header.max_timestamp_ms)

    @contextmanager
    def _telling_untrue(self, partition: Partition) -> Iterator[None]:
        try:
            yield
        except BatchRefused as refusal:
            if refusal.is_broken:
                self._trust.refused(partition.topic_partition.topic, str(refusal))
            raise


def _no_trust_yet(environment: HandlerEnvironment, channel: Channel) -> ConnectionTrust:
    trust = channel.trust = environment.trust.of_connection(channel.client.client_id or "")
    return trust


def refused(number: int, error: ApiError) -> ProduceResult:
    """The result that carries an error."""
    errors = error.record_errors if isinstance(error, BatchRefused) else ()
    return number, error.code, -1, -1, -1, error.message, errors
