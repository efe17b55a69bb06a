"""A stand-in for a broker with some partitions, as far as a fetch uses it, and for one consumer."""

import asyncio
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from asked_in_turns import SlowClock

from barnabas_broker.app.loop_turns import LoopTimers
from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import Client, GiveUp, RawHandler, TakesTurns
from barnabas_broker.handlers.fetch import handle as handle_fetch
from barnabas_broker.handlers.large_responses import LargeResponses, SharedTurn
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.wire.fetch import LIMITS, PARTITION, SESSION
from barnabas_broker.wire.framing import FileSlice, Part, write_count
from barnabas_core.errors import ApiError, ErrorCode
from harness.deadline import PATIENCE_S

VERSION = 13
TOPIC = UUID(int=7)
MANY_PARTITIONS = 1_510
"""So many that the request takes turns."""
BATCH_BYTES = 100


class OnePartition:
    """The parts of a partition that a fetch uses."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.waiters = purgatory.wait_list()
        self.log = SimpleNamespace(log_start_offset=0, high_watermark=0, known_producers=SimpleNamespace(states=None))
        self.leader: object | None = object()
        self.reads = 0

    def check_readable(self, epoch: int) -> None:
        self.reads += 1
        if self.leader is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")

    def read(self, offset: int, length_max: int, offset_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        length = (self.log.high_watermark - offset) * BATCH_BYTES
        return FileSlice(None, 0, length) if 0 < length <= length_max or (at_least_one_batch and length) else None  # type: ignore[arg-type]

    def append(self) -> None:
        self.log.high_watermark += 1
        self.waiters.mark()


class FetchedBroker:
    """A broker with some partitions, and the consumer's connection."""

    def __init__(self, partitions: int = MANY_PARTITIONS) -> None:
        timers = LoopTimers(asyncio.get_running_loop())
        purgatory = Purgatory(timers)
        self.is_gone = self.is_read = False
        self.partitions = [OnePartition(purgatory) for _ in range(partitions)]
        self.client = Client("PLAINTEXT", "127.0.0.1:5")
        self.trust: ConnectionTrust | None = None
        self.turn: SharedTurn | None = None
        self.when_closed: list[Callable[..., object]] = []
        self.last_turn: SharedTurn | None = None
        self.response: list[Part] | None = None
        self.answered = 0
        self.answers: Any = None
        self.closed: str | None = None
        self.most_in_a_turn = self.most_freed = 0
        self.handler_environment: Any = SimpleNamespace(
            authorizer=None,
            suspect=lambda *_: None,
            quotas=SimpleNamespace(are_set=False),
            replicas=SimpleNamespace(
                lookup=SimpleNamespace(find=lambda name, topic_id, number: self.partitions[number])
            ),
            config=SimpleNamespace(fetch_max_bytes=10_000_000, listeners=SimpleNamespace(inter_broker="REPLICATION")),
            image=MetadataImage(),
            purgatory=purgatory,
            attempt=asyncio.ensure_future,
            fetches=LargeResponses(SlowClock(), timers),
            broker_fetches=LargeResponses(SlowClock(), timers),
        )

    def request_is_read(self) -> None:
        self.is_read = True

    def answer(self, parts: list[Part]) -> None:
        self.response = parts
        self.answered += 1

    def answer_soon(self, response: bytes | bytearray) -> None:
        self.answer([response])

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        return lambda parts: self.answer(parts) if parts else None

    def close(self, reason: str | None = None) -> None:
        self.closed = reason

    @property
    def reads(self) -> int:
        return sum(partition.reads for partition in self.partitions)

    @property
    def kept(self) -> int:
        """The number of elements that the last large request keeps."""
        return 0 if self.last_turn is None else len(self.last_turn.kept)

    def request(
        self,
        *,
        min_bytes: int = 1,
        max_wait_ms: int = 60_000,
        topics: int = 1,
        partitions: int | None = None,
        forgotten: int = 0,
        replica_id: int = -1,
    ) -> bytes:
        """Return the body of a request for partitions, or all, of topics with consecutive ids."""
        count = len(self.partitions) if partitions is None else partitions
        body = struct.pack(">i", replica_id) + LIMITS.pack(max_wait_ms, min_bytes, 10_000_000, 0) + SESSION.pack(0, -1)
        body += write_count(topics, flexible=True)
        for topic in range(topics):
            body += UUID(int=TOPIC.int + topic).bytes + write_count(count, flexible=True)
            for number in range(count):
                number %= len(self.partitions)
                body += PARTITION.pack(number, -1, 0, -1, -1, 1_000_000) + b"\0"
            body += b"\0"
        body += write_count(forgotten, flexible=True)
        body += (TOPIC.bytes + write_count(0, flexible=True) + b"\0") * forgotten
        return body + b"\1\0"

    def fetch(self, *, min_bytes: int = 1, max_wait_ms: int = 60_000) -> None:
        self.send(self.request(min_bytes=min_bytes, max_wait_ms=max_wait_ms))

    def send(self, body: bytes, handle: RawHandler = handle_fetch) -> GiveUp | None:
        """Handle a request as the dispatcher does, also in turns."""
        where = memoryview(bytearray(body)), 0, len(body)
        try:
            return handle(self.handler_environment, self, VERSION, 1, *where)
        except TakesTurns as large:
            self.turn = self.last_turn = large.scheduler.turn(lambda: self.is_gone)
            try:
                return handle(self.handler_environment, self, VERSION, 1, *where)
            finally:
                self.turn = None

    async def turns(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                before, kept = self.reads, self.kept
                await asyncio.sleep(0)
                self.most_freed = max(self.most_freed, kept - self.kept)
                self.most_in_a_turn = max(self.most_in_a_turn, self.reads - before)

    def has_read(self, partitions: int) -> bool:
        return self.reads == partitions

    def slices(self) -> int:
        assert self.response is not None
        return sum(isinstance(part, FileSlice) for part in self.response)
