"""Checks of the brokers while a share group works: dead letters, and the start offsets that are stored."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final
from unittest.mock import patch

from barnabas_broker.coordinators.share_delivery.dead_letters import DeadLetter, Destination, _Writing
from barnabas_broker.coordinators.share_state.share_state import ShareOutcome
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header
from barnabas_broker.wire.records import Record, decode_batch
from barnabas_core.topic_partition import TopicIdPartition
from simulation.cluster import SimulatedCluster
from simulation.share_history import Letter, Place, ShareHistory

LETTERS: Final = "dlq.jobs"
POLL_S: Final = 0.1
PREFIX: Final = "__dlq.errors."


def leader_of(cluster: SimulatedCluster, topic: str, number: int) -> Partition | None:
    """Return the leading replica of a partition, that of the highest epoch."""
    leaders = [
        each
        for broker in cluster.brokers
        for each in broker.partitions()
        if each.leader is not None and each.failure is None and each.topic_partition == (topic, number)
    ]
    return max(leaders, key=lambda each: each.leader_epoch, default=None)


def records_of(partition: Partition, since: int = 0) -> Iterator[tuple[Place, Record]]:
    """Yield the committed records of a replica from an offset on, without markers."""
    log, (topic, number) = partition.log, partition.topic_partition
    begin = max(since, log.log_start_offset)
    for segment in log.segments:
        data = segment.file.read_at(0, segment.size_bytes)
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = parse_header(data, position)
            if not header.is_control and header.last_offset >= begin and header.last_offset < log.high_watermark:
                for record in decode_batch(data, position, header, 1 << 20):
                    offset = header.base_offset + record.offset_delta
                    if offset >= begin:
                        yield Place(topic, number, offset), record
            position += header.size_bytes


def kept(records: Iterable[tuple[Place, Record]]) -> dict[Place, Record]:
    """Return the records that no replica may have removed by compaction: a later one of the same key would allow it."""
    found = dict(records)
    latest = {record.key: place for place, record in found.items()}
    return {place: record for place, record in found.items() if record.key is None or latest[record.key] == place}


class ShareWatch:
    """Notes violations in the history of a share group."""

    def __init__(self, cluster: SimulatedCluster, shares: ShareHistory, group_id: str) -> None:
        self._cluster = cluster
        self._shares = shares
        self._group_id = group_id
        self._letters_end: dict[int, int] = {}
        self._starts: dict[tuple[str, int], int] = {}
        self._looks: dict[_Writing, float] = {}
        self._letters_seen_s: dict[Place, float] = {}

    async def run(self) -> None:
        """Look until this is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(POLL_S)

    def look(self) -> None:
        """Look at all brokers once."""
        for number in {number for topic, number in self._cluster.states() if topic == LETTERS}:
            leader = leader_of(self._cluster, LETTERS, number)
            for place, record in () if leader is None else records_of(leader, self._letters_end.get(number, 0)):
                self._letters_end[number] = place.offset + 1
                self._note_letter(record)
        self._look_at_starts()

    def _note_letter(self, record: Record) -> None:
        headers = {header.key.removeprefix(PREFIX): (header.value or b"").decode() for header in record.headers}
        place = Place(headers["topic"], int(headers["partition"]), int(headers["offset"]))
        is_rejected = headers["message"].startswith("Offset rejected")
        self._letters_seen_s.setdefault(place, self._cluster.loop.time())
        self._shares.wrote(Letter(place, int(headers["delivery.count"]), is_rejected, record.value))

    def _look_at_starts(self) -> None:
        for broker in self._cluster.brokers:
            if broker.node is None or not broker.is_serving:
                continue
            environment = broker.node.handler_environment
            for name, topic in environment.image.topics.items():
                for number in range(len(topic.partitions)) if name in self._shares.topics() else ():
                    answer = partial(self._note_start, name, number)
                    key = TopicIdPartition(topic.topic_id, number)
                    environment.share_state.read_summary(self._group_id, key, answer)

    def _note_start(self, topic: str, number: int, outcome: ShareOutcome) -> None:
        """Check that all records below a stored start are final, or gone."""
        before, leader = self._starts.get((topic, number), 0), leader_of(self._cluster, topic, number)
        if outcome.error or outcome.start_offset <= before or leader is None:
            return
        self._starts[topic, number] = outcome.start_offset
        begin = max(before, *(each.log.log_start_offset for each in self._replicas(topic, number)))
        there = {place for place in kept(records_of(leader, begin)) if place.offset < outcome.start_offset}
        for place in self._shares.given() & there:
            if not self._shares.is_final(place):
                self._shares.violation(f"start: {outcome.start_offset} is stored, and {place} is not final")

    def _replicas(self, topic: str, number: int) -> Iterator[Partition]:
        for broker in self._cluster.brokers:
            yield from (each for each in broker.partitions() if each.topic_partition == (topic, number))

    def looked(self, writing: _Writing) -> None:
        """Note that a leader begins to look for dead letters that are there."""
        self._looks[writing] = self._cluster.loop.time()

    def appends(self, writing: _Writing, offsets: Sequence[int]) -> None:
        """Note that a leader appends dead letters; check that they were not there when it looked."""
        source = writing._source
        for offset in offsets:
            seen_s = self._letters_seen_s.get(Place(source.topic, source.partition, offset), float("inf"))
            if seen_s <= self._looks[writing]:
                self._shares.violation(f"doubled: the dead letter of {source} at {offset} was there at {seen_s:.3f} s")


@contextmanager
def deliveries_of_letters(watch: ShareWatch) -> Iterator[None]:
    """Let the watch know when leaders look for dead letters, and what they append."""
    write, append = _Writing._write, _Writing._append

    async def watched_write(self: _Writing, letters: list[DeadLetter]) -> None:
        watch.looked(self)
        await write(self, letters)

    async def watched_append(self: _Writing, place: Destination, batch: Sequence[Record], offsets: list[int]) -> None:
        watch.appends(self, offsets)
        await append(self, place, batch, offsets)

    with patch.object(_Writing, "_write", watched_write), patch.object(_Writing, "_append", watched_append):
        yield
