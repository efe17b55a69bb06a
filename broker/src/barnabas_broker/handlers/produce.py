"""Produce (0), v3 to v13. Batches are checked by their headers and appended as they are; nothing is copied.

v9 is flexible, v13 names topics by id. Only topics that recompress or compact look into batches, in the helper process;
the answer then comes later. acks=0 gets no answer; when it fails the connection is closed, which is all the client
would notice.
"""

from collections.abc import Awaitable, Callable
from typing import Final, cast

from barnabas_broker.handlers.exchange import Channel, CloseConnection
from barnabas_broker.handlers.services import Services
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.wire.framing import RequestHeader
from barnabas_broker.wire.parts import Part
from barnabas_broker.wire.produce import (
    ProducePartition,
    ProduceResult,
    ProduceTopic,
    encode_produce_response,
    parse_produce,
)
from barnabas_broker.wire.record_batch import BatchHeader, parse_header, validate_produced
from barnabas_core.errors import ApiError, ErrorCode

ACKS_ALLOWED: Final = frozenset({-1, 0, 1})
TOPIC_IDS_SINCE: Final = 13

Answer = ProduceResult | Awaitable[ProduceResult]
Answers = list[tuple[ProduceTopic, list[ProduceResult]]]


def handle(services: Services, channel: Channel, header: RequestHeader, buffer: memoryview, end: int) -> None:
    """Append every batch, then answer with a result for each; CloseConnection when acks=0 and one failed."""
    request = parse_produce(buffer, header.body_start, end, header.api_version)
    appender = _Appender(services, buffer, request.acks)
    answers = [(topic, [appender.append(topic, wanted) for wanted in topic.partitions]) for topic in request.topics]
    if appender.is_waiting:
        respond = channel.defer()
        services.spawn(_answer_later(channel, header, answers, request.acks, respond))
        return
    parts = _encode(header, cast("Answers", answers), request.acks)
    if parts:
        channel.respond(parts)


async def _answer_later(
    channel: Channel,
    header: RequestHeader,
    answers: list[tuple[ProduceTopic, list[Answer]]],
    acks: int,
    respond: Callable[[list[Part]], None],
) -> None:
    done = [
        (topic, [each if isinstance(each, ProduceResult) else await each for each in results])
        for topic, results in answers
    ]
    try:
        respond(_encode(header, done, acks))
    except CloseConnection as reason:
        channel.close(str(reason))


def _encode(header: RequestHeader, answers: Answers, acks: int) -> list[Part]:
    if acks:
        return [encode_produce_response(header.correlation_id, header.api_version, answers)]
    for _, results in answers:
        for result in results:
            if result.error:
                raise CloseConnection(f"acks=0 and {ErrorCode(result.error).name}: {result.error_message}")
    return []


class _Appender:
    """Appends the batches of one request, one after the other."""

    def __init__(self, services: Services, buffer: memoryview, acks: int) -> None:
        self._services = services
        self._buffer = buffer
        self._acks = acks
        self._now_ms = services.clock.now_ms()
        self.is_waiting = False

    def append(self, topic: ProduceTopic, wanted: ProducePartition) -> Answer:
        """The result for one partition, or an awaitable of it when the records must be looked into first."""
        try:
            if self._acks not in ACKS_ALLOWED:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks}; -1, 0 and 1 are allowed")
            partition = self._services.replicas.find(topic.name, topic.topic_id, wanted.partition)
            partition.check_writable(all_replicas=self._acks == -1)
            config = partition.log.config
            header = validate_produced(self._buffer, wanted.start, wanted.end, config.message_bytes_max)
            batch = self._buffer[wanted.start : wanted.end]
            if partition.inspects_records:
                self.is_waiting = True
                return self._append_inspected(partition, wanted.partition, bytes(batch))
            return self._append_checked(partition, wanted.partition, batch, header)
        except ApiError as error:
            return refused(wanted.partition, error)

    def _append_checked(
        self, partition: Partition, index: int, batch: memoryview, header: BatchHeader
    ) -> ProduceResult:
        try:
            appended = partition.append_as_leader(batch, header, self._now_ms)
        except StorageError as error:
            return refused(index, self._services.replicas.storage_failed(partition, error))
        return ProduceResult(
            index, 0, appended.base_offset, appended.log_append_time_ms, partition.log.log_start_offset, None
        )

    async def _append_inspected(self, partition: Partition, index: int, batch: bytes) -> ProduceResult:
        """Null keys on a compacted topic are refused; a topic with a codec of its own gets it. Off the event loop."""
        try:
            stored = await self._services.inspector.inspect(batch, partition.log.config)
            view = memoryview(bytearray(stored))
            partition.check_writable(all_replicas=self._acks == -1)
            return self._append_checked(partition, index, view, parse_header(view, 0))
        except ApiError as error:
            return refused(index, error)


def refused(index: int, error: ApiError) -> ProduceResult:
    """The result that carries an error."""
    return ProduceResult(index, error.code, -1, -1, -1, error.message)
