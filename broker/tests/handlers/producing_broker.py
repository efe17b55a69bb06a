"""A broker that clients produce to, and valid and invalid batches."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kafka.protocol.producer import ProduceRequest, ProduceResponse
from one_replica import FLIGHTS, HERE, NOW_MS, Broker, led

from barnabas_broker.handlers import channel, produce
from barnabas_broker.handlers.batch_trust import (
    FIRST_BATCHES,
    BatchTrust,
    ConnectionTrust,
    InvalidOutcome,
)
from barnabas_broker.handlers.large_responses import LargeResponses, SharedTurn
from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.helper import Request, Response
from barnabas_broker.storage.helper_worker import Worker
from barnabas_broker.storage.inspection import FIRST_HERE_MAX, BatchInspector
from barnabas_broker.wire.framing import Part
from barnabas_broker.wire.record_batch import crc_matches, parse_header, sealed_batch
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LogConfig

VERSION = 12
TOPIC_ID = UUID(int=7)
MANY = FIRST_HERE_MAX + 1


class HelperHere:
    """A helper in this process that responds as the helper process does."""

    def __init__(self) -> None:
        self.worker = Worker(PosixFileSystem(), lambda seconds: None)
        self.asked: list[Request] = []

    async def request(self, request: Request) -> Response:
        self.asked.append(request)
        return self.worker.answer(request)


class Client:
    """One connection to a broker of one replica."""

    def __init__(self, broker: "Producing", client_id: str = "sarama", version: int = VERSION) -> None:
        self.version = version
        self.give_up: channel.GiveUp | None = None
        self.broker = broker
        self.topic = FLIGHTS.topic
        self.client = channel.Client("PLAINTEXT", "127.0.0.1:5", client_id)
        self.trust: ConnectionTrust | None = None
        self.turn: SharedTurn | None = None
        self.when_closed: list[Callable[..., object]] = []
        self.is_read = False
        self.is_muted = False
        self.answers: list[Part] = []
        self.closed: str | None = None
        self.transactional_id: str | None = None
        self.timeout_ms = 1500

    def request_is_read(self) -> None:
        self.is_read = True

    def answer(self, parts: list[Part]) -> None:
        self.answers += parts

    def answer_soon(self, response: bytes | bytearray) -> None:
        self.answer([response])

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        self.is_muted = self.is_muted or not reads_on

        def answered(parts: list[Part]) -> None:
            self.is_muted = self.is_muted and reads_on
            self.answers += parts

        return answered

    def close(self, reason: str | None = None) -> None:
        self.closed = reason

    def begin(self, *batches: bytes, acks: int = 1) -> None:
        topic = ProduceRequest.TopicProduceData
        partitions = [topic.PartitionProduceData(index=0, records=batch) for batch in batches]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=acks,
            timeout_ms=self.timeout_ms,
            topic_data=[topic(name=self.topic, topic_id=TOPIC_ID, partition_data=partitions)],
        )
        body = bytearray(request.encode(version=self.version))
        services: Any = self.broker.handler_environment
        where = memoryview(body), 0, len(body)
        self.give_up = produce.handle(services, self, self.version, 7, *where)

    def response(self) -> Any:
        frame = bytes(self.answers.pop())  # type: ignore[arg-type]
        return ProduceResponse.decode(frame, version=self.version, header=True, framed=True)

    def results(self) -> list[Any]:
        return list(self.response().responses[0].partition_responses)

    def send(self, batch: bytes | bytearray) -> Any:
        self.begin(bytes(batch))
        self.broker.run_what_was_spawned()
        return self.results()[0]

    def send_true_ones(self, count: int = FIRST_BATCHES) -> None:
        for _ in range(count):
            assert self.send(true_batch()).error_code == 0


class Producing(Broker):
    """The parts of a broker that Produce uses."""

    def __init__(self, folder: Path, config: LogConfig | None = None) -> None:
        super().__init__(folder, led(HERE, 1, HERE, replicas=1))
        self.partition.configure(config or LogConfig())
        self.helper: Any = HelperHere()
        self.spawned: list[Coroutine[object, object, None]] = []
        self.handler_environment = SimpleNamespace(
            authorizer=None,
            replicas=self.replicas,
            image=self.image,
            clock=self.clock,
            timers=self.timers,
            attempt=self.spawned.append,
            answers=LargeResponses(self.clock, self.timers),
            inspector=BatchInspector(self.helper, self.clock, asyncio.timeout),  # type: ignore[arg-type]
            trust=BatchTrust(),
            quotas=SimpleNamespace(are_set=False),
            config=SimpleNamespace(fetch_max_bytes=1 << 20),
        )

    @property
    def invalid(self) -> dict[tuple[str, InvalidOutcome], int]:
        return dict(self.handler_environment.trust.invalid)

    def run_what_was_spawned(self) -> None:
        while self.spawned:
            asyncio.run(self.spawned.pop(0))

    def stored_times_ms(self) -> list[int]:
        """Return the largest timestamp of each batch in the log, and check the CRC of each."""
        data, position, times = (self.folder / f"{FLIGHTS}" / f"{0:020}.log").read_bytes(), 0, []
        while position < len(data):
            header = parse_header(data, position)
            assert crc_matches(memoryview(data), position, header)
            times.append(header.max_timestamp_ms)
            position += header.size_bytes
        return times


def true_batch(records: int = 3, **told: int) -> bytearray:
    made = [Record(number, NOW_MS + number, b"key", b"value") for number in range(records)]
    return encode_batch(made, **told)


def no_records(count: int = 3, size_bytes: int = 40) -> bytearray:
    header = parse_header(true_batch(count), 0)
    return sealed_batch(header, b"\xff" * size_bytes)
