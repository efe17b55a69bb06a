"""Clients that speak the protocol in bytes: a producer with retries, a reader, and a committer of a group's offsets."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import API_SPECS
from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header
from barnabas_broker.wire.records import Record, decode_batch, encode_batch
from barnabas_broker.wire.schema import message
from simulation.history import Acknowledged, History, Seen
from simulation.loop import Host
from simulation.network import Network

PRODUCE: Final = 0, 9
FETCH: Final = 1, 12
METADATA: Final = 3, 9
OFFSET_COMMIT: Final = 8, 7
OFFSET_FETCH: Final = 9, 7
FIND_COORDINATOR: Final = 10, 3
INIT_PRODUCER_ID: Final = 22, 4
NONE: Final = 0
OUT_OF_RANGE: Final = 1
RETRY_S: Final = 0.05
TIMEOUT_S: Final = 3.0
FATAL: Final = {45: "OUT_OF_ORDER_SEQUENCE_NUMBER", 47: "INVALID_PRODUCER_EPOCH", 2: "CORRUPT_MESSAGE"}


class Failed(Exception):
    """The error that the connection broke or gave no answer: nobody knows the outcome of the request."""


class Line:
    """A connection, with the requests that wait for answers. `on_gone` is called when it cannot be used any more."""

    def __init__(self, network: Network, source: Host, broker: str, on_gone: Callable[["Line"], object]) -> None:
        self._on_gone = on_gone
        self._waiting: dict[asyncio.Future[memoryview], None] = {}
        self._connection = network.connect(source, broker, self._broke)

    async def ask(self, frame: bytes) -> memoryview:
        """Send one request and return the answer. Raises Failed."""
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = None
        self._connection.send(frame, lambda data: None if answer.done() else answer.set_result(data))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answer
        except TimeoutError:
            self._connection.close()
            self._broke("no answer in time")
            raise Failed("no answer in time") from None
        finally:
            self._waiting.pop(answer, None)

    def close(self) -> None:
        """Close the connection; what is on its way may still arrive."""
        self._connection.close()
        self._broke("closed")

    def _broke(self, reason: str) -> None:
        self._on_gone(self)
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(Failed(reason))


class Client:
    """A client that sends requests to brokers by their names, on one connection to each."""

    def __init__(self, network: Network, name: str, random: Random, bootstrap: list[str]) -> None:
        self.host = Host(name, network.loop)
        self.random = random
        self._network = network
        self._bootstrap = bootstrap
        self._lines: dict[str, Line] = {}
        self._number = 0

    async def ask(self, broker: str, api: tuple[int, int], request: Any) -> Any:
        """Return the decoded response. Raises Failed."""
        self._number += 1
        line = self._lines.get(broker)
        if line is None:
            line = self._lines[broker] = Line(self._network, self.host, broker, partial(self._forget, broker))
        return _response(api, await line.ask(_frame(api, self._number, request)))

    def _forget(self, broker: str, line: Line) -> None:
        if self._lines.get(broker) is line:
            del self._lines[broker]

    def close(self) -> None:
        """Close all connections, as the end of a process does."""
        for line in list(self._lines.values()):
            line.close()

    async def any(self, api: tuple[int, int], request: Any) -> Any:
        """Return the response of any broker that answers."""
        return await self.ask(self.random.choice(self._bootstrap), api, request)

    async def leader(self, topic: str, partition: int) -> str:
        """Return the broker that leads. Raises Failed."""
        wanted = message_class("MetadataRequest")
        request = wanted(topics=[wanted.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response = await self.any(METADATA, request)
        for each in response.topics[0].partitions:
            if each.partition_index == partition and each.leader_id >= 0:
                return f"b{each.leader_id}"
        raise Failed("no leader")

    async def pause(self) -> None:
        """Wait before the next try."""
        await asyncio.sleep(RETRY_S * self.random.uniform(0.5, 2))


def _frame(api: tuple[int, int], number: int, request: Any) -> bytes:
    key, version = api
    name = f"{API_SPECS[key].name}Request"
    body = bytearray()
    encoder(name, version)(body, request)
    client_id = b"simulated"
    header = key.to_bytes(2) + version.to_bytes(2) + number.to_bytes(4) + len(client_id).to_bytes(2) + client_id
    if message(name).flexible.hold(version):
        header += b"\0"
    return (len(header) + len(body)).to_bytes(4) + header + bytes(body)


def _response(api: tuple[int, int], data: memoryview) -> Any:
    key, version = api
    name = f"{API_SPECS[key].name}Response"
    start = 5 if message(name).flexible.hold(version) else 4
    return decoder(name, version)(memoryview(bytes(data))[start:])


class Producer:
    """A producer of values to one partition, with acks=all. It retries each until it is acknowledged or time is up."""

    def __init__(
        self,
        client: Client,
        topic: str,
        partition: int,
        history: History,
        *,
        idempotent: bool,
        key: Callable[[Random], bytes] | None = None,
    ) -> None:
        self._client = client
        self._key = key
        """A function that draws the key of a record; None for records without keys."""
        self._topic = topic
        self._partition = partition
        self._history = history
        self._idempotent = idempotent
        self._producer_id = -1
        self._sequence = 0
        self._leader: str | None = None
        self.name = f"{client.host.name}/{topic}-{partition}"

    async def run(self) -> None:
        """Produce until this is cancelled."""
        number = 0
        if self._idempotent:
            self._producer_id = await self._init()
        while True:
            count = self._client.random.randint(1, 3)
            values = [f"{self.name}/{number + each}".encode() for each in range(count)]
            self._history.sent(values, idempotent=self._idempotent)
            await self._deliver(values)
            number += count
            self._sequence += count
            await asyncio.sleep(self._client.random.expovariate(8))

    async def _init(self) -> int:
        request = message_class("InitProducerIdRequest")(
            transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
        )
        while True:
            with suppress(Failed):
                response = await self._client.any(INIT_PRODUCER_ID, request)
                if response.error_code == NONE:
                    return int(response.producer_id)
            await self._client.pause()

    async def _deliver(self, values: list[bytes]) -> None:
        while True:
            with suppress(Failed):
                self._leader = self._leader or await self._client.leader(self._topic, self._partition)
                result = await self._produce(self._leader, values)
                if result.error_code == NONE:
                    for index, value in enumerate(values):
                        at = Acknowledged(self._topic, self._partition, result.base_offset + index, value)
                        self._history.acknowledged(at)
                    return
                if result.error_code in FATAL:
                    self._history.violation(f"{self.name} is refused with {FATAL[result.error_code]}")
                    await asyncio.sleep(1e9)
            self._leader = None
            await self._client.pause()

    async def _produce(self, leader: str, values: list[bytes]) -> Any:
        now_ms = self._client.host.now_ms()
        batch = encode_batch(
            [
                Record(index, now_ms, self._key and self._key(self._client.random), value)
                for index, value in enumerate(values)
            ],
            producer_id=self._producer_id,
            producer_epoch=0 if self._idempotent else -1,
            base_sequence=self._sequence if self._idempotent else -1,
        )
        request = message_class("ProduceRequest")
        topic = request.TopicProduceData
        made = request(
            transactional_id=None,
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                topic(
                    name=self._topic,
                    partition_data=[topic.PartitionProduceData(index=self._partition, records=bytes(batch))],
                )
            ],
        )
        response = await self._client.ask(leader, PRODUCE, made)
        return response.responses[0].partition_responses[0]


class Reader:
    """A reader of one partition, from its start."""

    def __init__(self, client: Client, topic: str, partition: int, history: Seen) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._history = history
        self.offset = 0
        self._leader: str | None = None

    async def run(self) -> None:
        """Read until this is cancelled."""
        while True:
            with suppress(Failed):
                await self.poll()
            await asyncio.sleep(self._client.random.uniform(0.02, 0.3))

    async def poll(self) -> int:
        """Fetch once; return the number of records. Raises Failed."""
        try:
            self._leader = self._leader or await self._client.leader(self._topic, self._partition)
            found = await self._fetch(self._leader)
        except Failed:
            self._leader = None
            raise
        if found.error_code != NONE:
            self._leader = None
            if found.error_code == OUT_OF_RANGE:
                self._out_of_range()
            raise Failed(f"error {found.error_code}")
        return self._take(bytes(found.records or b""))

    def _out_of_range(self) -> None:
        """Begin again at the start of the log; allowed only if a loss was accepted."""
        if not self._history.is_told_lost(self._topic, self._partition):
            what = f"a reader of {self._topic}-{self._partition} at {self.offset} is told it is out of range"
            self._history.violation(what)
        self.offset = 0

    async def _fetch(self, leader: str) -> Any:
        request = message_class("FetchRequest")
        wanted = request.FetchTopic.FetchPartition(
            partition=self._partition,
            current_leader_epoch=-1,
            fetch_offset=self.offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        made = request(
            replica_id=-1,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[request.FetchTopic(topic=self._topic, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )
        response = await self._client.ask(leader, FETCH, made)
        return response.responses[0].partitions[0]

    def _take(self, data: bytes) -> int:
        position = count = 0
        while len(data) - position >= HEADER_BYTES:
            header = parse_header(data, position)
            if position + header.size_bytes > len(data):
                break
            for record in decode_batch(data, position, header, 1 << 20):
                offset = header.base_offset + record.offset_delta
                if offset >= self.offset:
                    self._history.read(self._topic, self._partition, offset, bytes(record.value or b""))
                    count += 1
            self.offset = max(self.offset, header.last_offset + 1)
            position += header.size_bytes
        return count


class Committer:
    """A committer of ever higher offsets for a group, which checks that they are there."""

    def __init__(self, client: Client, group_id: str, history: History) -> None:
        self._client = client
        self._group_id = group_id
        self._history = history
        self.offset = 0
        self.committed = -1
        self._in_doubt: set[int] = set()
        """The commits without an answer: each may reach the coordinator late, after others."""
        self._coordinator: str | None = None

    async def run(self) -> None:
        """Commit until this is cancelled."""
        while True:
            with suppress(Failed):
                await self.step()
            await asyncio.sleep(self._client.random.expovariate(4))

    async def step(self) -> None:
        """Commit once, and look once. Raises Failed."""
        try:
            self._coordinator = self._coordinator or await self._find()
            self.offset += 1
            self._in_doubt.add(self.offset)
            if await self._commit(self._coordinator, self.offset) == NONE:
                self._in_doubt.discard(self.offset)
                self.committed = self.offset
            await self.look()
        except Failed:
            self._coordinator = None
            raise

    async def look(self) -> None:
        """Check that the committed offset is not less than the acknowledged one."""
        self._coordinator = self._coordinator or await self._find()
        acknowledged = self.committed
        request = message_class("OffsetFetchRequest")
        wanted = request.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        response = await self._client.ask(
            self._coordinator, OFFSET_FETCH, request(group_id=self._group_id, topics=[wanted], require_stable=False)
        )
        if response.error_code != NONE:
            self._coordinator = None
            raise Failed(f"error {response.error_code}")
        found = response.topics[0].partitions[0].committed_offset
        if found < acknowledged and found not in self._in_doubt and not self._history.offsets_are_told_lost:
            self._history.violation(f"group {self._group_id} committed {acknowledged}, and {found} is there")

    async def _find(self) -> str:
        request = message_class("FindCoordinatorRequest")(key=self._group_id, key_type=0)
        response = await self._client.any(FIND_COORDINATOR, request)
        if response.error_code != NONE:
            raise Failed(f"error {response.error_code}")
        return f"b{response.node_id}"

    async def _commit(self, coordinator: str, offset: int) -> int:
        request = message_class("OffsetCommitRequest")
        topic = request.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        made = request(
            group_id=self._group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[topic(name="t", partitions=[partition])],
        )
        response = await self._client.ask(coordinator, OFFSET_COMMIT, made)
        code = int(response.topics[0].partitions[0].error_code)
        if code != NONE:
            self._coordinator = None
        return code
