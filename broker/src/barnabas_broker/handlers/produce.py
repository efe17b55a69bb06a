"""Produce (0), v3 to v13. Batches are checked by their headers and appended as they are; nothing is copied.

v9 is flexible, v13 names topics by id. Only topics that recompress or compact look into batches, in the helper process;
the answer then comes later. acks=0 gets no answer; when it fails the connection is closed, which is all the client
would notice.
"""

from collections.abc import Awaitable, Callable
from typing import Final, cast

from barnabas_broker.handlers.exchange import Channel, CloseConnection
from barnabas_broker.handlers.services import Services
from barnabas_broker.replication.partition import ANY_ACKS, Partition
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.wire.parts import Part
from barnabas_broker.wire.produce import (
    ProducePartition,
    ProduceResult,
    ProduceTopic,
    encode_produce_response,
    parse_produce,
)
from barnabas_broker.wire.record_batch import parse_header, validate_produced
from barnabas_core.errors import ApiError, ErrorCode

ACKS_ALL: Final = -1
NO_ERROR: Final = 0

Answer = ProduceResult | Awaitable[ProduceResult]
Answers = list[tuple[ProduceTopic, list[ProduceResult]]]


def handle(
    services: Services,
    channel: Channel,
    version: int,
    correlation_id: int,
    buffer: memoryview,
    body_start: int,
    end: int,
) -> None:
    """Append every batch, then answer with a result for each; CloseConnection when acks=0 and one failed."""
    request = parse_produce(buffer, body_start, end, version)
    acks = request.acks
    appender = _Appender(services, buffer, acks)
    answers = [(topic, [appender.append(topic, each) for each in topic.partitions]) for topic in request.topics]
    if appender.is_waiting:
        respond = channel.defer()
        services.spawn(_answer_later(channel, respond, version, correlation_id, acks, answers))
    elif acks:
        channel.respond([encode_produce_response(correlation_id, version, cast("Answers", answers))])
    else:
        _check_unanswered(cast("Answers", answers))


async def _answer_later(
    channel: Channel,
    respond: Callable[[list[Part]], None],
    version: int,
    correlation_id: int,
    acks: int,
    answers: list[tuple[ProduceTopic, list[Answer]]],
) -> None:
    done = [
        (topic, [each if isinstance(each, tuple) else await each for each in results]) for topic, results in answers
    ]
    try:
        if not acks:
            _check_unanswered(done)
        respond([encode_produce_response(correlation_id, version, done)] if acks else [])
    except CloseConnection as reason:
        channel.close(str(reason))


def _check_unanswered(answers: Answers) -> None:
    """With acks=0 nobody hears of errors: the connection is closed, so that the client at least looks again."""
    for _, results in answers:
        for _, error, _, _, _, message in results:
            if error:
                raise CloseConnection(f"acks=0 and {ErrorCode(error).name}: {message}")


class _Appender:
    """Appends the batches of one request, one after the other."""

    __slots__ = ("_acks", "_buffer", "_now_ms", "_replicas", "_services", "is_waiting")

    def __init__(self, services: Services, buffer: memoryview, acks: int) -> None:
        self._services = services
        self._replicas = services.replicas
        self._buffer = buffer
        self._acks = acks
        self._now_ms = services.clock.now_ms()
        self.is_waiting = False

    def append(self, topic: ProduceTopic, wanted: ProducePartition) -> Answer:
        """The result for one partition, or an awaitable of it when the records must be looked into first."""
        number, start, end = wanted
        partition = None
        try:
            partition = self._replicas.find(topic.name, topic.topic_id, number)
            if self._acks not in partition.accepted_acks:
                self._refuse(partition)
            header = validate_produced(self._buffer, start, end, partition.batch_bytes_max)
            if partition.inspects_records:
                self.is_waiting = True
                return self._append_inspected(partition, bytes(self._buffer[start:end]))
            offset, append_time_ms, _ = partition.append_as_leader(self._buffer[start:end], header, self._now_ms)
        except ApiError as error:
            return refused(number, error)
        except StorageError as error:
            assert partition is not None
            return refused(number, self._replicas.storage_failed(partition, error))
        return number, NO_ERROR, offset, append_time_ms, partition.log_start_offset, None

    def _refuse(self, partition: Partition) -> None:
        if self._acks not in ANY_ACKS:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks}; -1, 0 and 1 are allowed")
        partition.check_writable(all_replicas=self._acks == ACKS_ALL)

    async def _append_inspected(self, partition: Partition, batch: bytes) -> ProduceResult:
        """Null keys on a compacted topic are refused; a topic with a codec of its own gets it. Off the event loop."""
        name, number = partition.topic_partition
        try:
            stored = memoryview(bytearray(await self._services.inspector.inspect(batch, partition.log.config)))
            with self._replicas.using(name, number) as current:
                current.check_writable(all_replicas=self._acks == ACKS_ALL)
                offset, append_time_ms, _ = current.append_as_leader(stored, parse_header(stored, 0), self._now_ms)
                return number, NO_ERROR, offset, append_time_ms, current.log_start_offset, None
        except ApiError as error:
            return refused(number, error)


def refused(number: int, error: ApiError) -> ProduceResult:
    """The result that carries an error."""
    return number, error.code, -1, -1, -1, error.message
