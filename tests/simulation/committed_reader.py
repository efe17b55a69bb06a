"""A consumer of committed records: it reads what a Fetch returns, without the records of aborted transactions."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from barnabas_broker.wire.key_values import decode_marker
from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header
from barnabas_broker.wire.records import decode_batch
from simulation.clients import Client, Failed

FETCH: Final = 1, 12
LIST_OFFSETS: Final = 2, 7
READ_COMMITTED: Final = 1
LATEST: Final = -1


class Place(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    offset: int


class CommittedReader:
    """Reads one partition; `position` is the next offset."""

    def __init__(self, client: Client, topic: str, partition: int) -> None:
        self.position = 0
        self.is_at_end = False
        """True if at the last look no committed record was after `position`, and no transaction was open."""
        self._client = client
        self._topic = topic
        self._partition = partition
        self._leader: str | None = None

    async def watch(
        self, saw: Callable[[Place, str], object], is_stable_until: Callable[[str, int, int], object]
    ) -> None:
        """Read and request the last stable offset repeatedly, until this is cancelled."""
        while True:
            with suppress(Failed):
                for place, value in await self.poll():
                    saw(place, value)
                is_stable_until(self._topic, self._partition, await self.last_stable_offset())
            await asyncio.sleep(self._client.random.uniform(0.05, 0.4))

    async def poll(self) -> list[tuple[Place, str]]:
        """Fetch once, and return the records. Raises Failed."""
        found = await self._ask_leader(FETCH, self._fetch_request())
        self.is_at_end = self.position == found.last_stable_offset == found.high_watermark
        return self._take(bytes(found.records or b""), list(found.aborted_transactions or ()))

    async def last_stable_offset(self) -> int:
        """Return the end of the partition for a consumer of committed records. Raises Failed."""
        kind = message_class("ListOffsetsRequest")
        topic = kind.ListOffsetsTopic
        wanted = topic.ListOffsetsPartition(partition_index=self._partition, current_leader_epoch=-1, timestamp=LATEST)
        request = kind(
            replica_id=-1, isolation_level=READ_COMMITTED, topics=[topic(name=self._topic, partitions=[wanted])]
        )
        return int((await self._ask_leader(LIST_OFFSETS, request)).offset)

    async def _ask_leader(self, api: tuple[int, int], request: Any) -> Any:
        try:
            self._leader = self._leader or await self._client.leader(self._topic, self._partition)
            answer = await self._client.ask(self._leader, api, request)
            found = (answer.responses if api == FETCH else answer.topics)[0].partitions[0]
            if found.error_code:
                raise Failed(f"error {found.error_code}")
        except Failed:
            self._leader = None
            raise
        return found

    def _fetch_request(self) -> Any:
        request = message_class("FetchRequest")
        wanted = request.FetchTopic.FetchPartition(
            partition=self._partition,
            current_leader_epoch=-1,
            fetch_offset=self.position,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        return request(
            replica_id=-1,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=READ_COMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=[request.FetchTopic(topic=self._topic, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )

    def _take(self, data: bytes, aborted: list[Any]) -> list[tuple[Place, str]]:
        aborted.sort(key=lambda each: each.first_offset)
        skipped: set[int] = set()
        taken: list[tuple[Place, str]] = []
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = parse_header(data, position)
            if position + header.size_bytes > len(data):
                break
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = decode_marker(memoryview(data)[position:], header)
                if marker is not None and not marker.is_commit:
                    skipped.discard(marker.producer_id)
            elif header.producer_id not in skipped:
                for record in decode_batch(data, position, header, 1 << 20):
                    place = Place(self._topic, self._partition, header.base_offset + record.offset_delta)
                    if place.offset >= self.position:
                        taken.append((place, bytes(record.value or b"").decode()))
            position += header.size_bytes
            self.position = max(self.position, header.last_offset + 1)
        return taken
