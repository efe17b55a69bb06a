"""The writing of dead letters on a real broker: full disks, and two groups that take each other's dead letters."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, Broker, led
from test_share_delivery import ALL

from barnabas_broker.coordinators.share_delivery.dead_letters import (
    GROUP_ENABLE,
    DeadLetterEnvironment,
    DeadLetterWriter,
    PartitionClient,
)
from barnabas_broker.coordinators.share_delivery.delivery import DeliveryEnvironment, ShareDelivery
from barnabas_broker.coordinators.share_delivery.led_partition import LedPartition
from barnabas_broker.coordinators.share_delivery.sessions import SessionKey
from barnabas_broker.coordinators.share_delivery.share_partition import REJECT, AcknowledgementBatch
from barnabas_broker.coordinators.share_delivery.window import RecordState
from barnabas_broker.coordinators.share_state.persister import Outcomes
from barnabas_broker.coordinators.share_state.share_state import ReadEntry, ShareOutcome, WriteEntry
from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Header, Record, encode_batch, iterate_records
from barnabas_core.config.group_configs import ShareGroupConfig, effective_share_config
from barnabas_core.topic_partition import TopicIdPartition
from harness.deadline import PATIENCE_S

LETTERS = "letters"
PILOTS, CLERKS = "pilots", "clerks"
KEYS = {PILOTS: TopicIdPartition(UUID(int=7), 0), CLERKS: TopicIdPartition(UUID(int=8), 0)}
"""The partition that each group reads; the other one takes its dead letters."""
TAKES = {PILOTS: LETTERS, CLERKS: FLIGHTS.topic}


class ReadyPersister:
    """A persister that stores everything at once."""

    def read(self, group_id: str, entries: Sequence[ReadEntry], answer: Callable[[Outcomes], object]) -> None:
        answer({each.partition: ShareOutcome(state_epoch=1, start_offset=0) for each in entries})

    def write(self, group_id: str, entries: Sequence[WriteEntry], answer: Callable[[Outcomes], object]) -> None:
        answer({each.partition: ShareOutcome() for each in entries})


class World:
    """A broker that leads two partitions, and two groups whose members reject all records."""

    def __init__(self, folder: Path, *, copies: bool = True) -> None:
        broker = self.broker = Broker(folder, led(HERE, 0, HERE, replicas=1))
        states = (led(HERE, 0, HERE, replicas=1),)
        configs = {"min.insync.replicas": "1", GROUP_ENABLE: "true"}
        topics = [TopicDocument(FLIGHTS.topic, UUID(int=7), states, configs)]
        topics.append(TopicDocument(LETTERS, UUID(int=8), states, configs))
        broker.show_only(*((topic_key(each.name), each) for each in topics))
        broker.timers.pass_time()
        self.copies = copies
        self.pauses: list[float] = []
        self.on_pause: Callable[[], object] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        client = PartitionClient(HERE, broker.replicas, broker.clock, None, lambda _: True)  # type: ignore[arg-type]
        writer = DeadLetterWriter(
            DeadLetterEnvironment(
                broker.image,
                broker.replicas,
                client,
                broker.clock,
                self._sleep,
                self._spawn,
                lambda: broker.config,
                None,  # type: ignore[arg-type]
                lambda _: True,
            )
        )
        self.delivery = ShareDelivery(
            DeliveryEnvironment(
                ReadyPersister(),  # type: ignore[arg-type]
                broker.replicas,
                broker.image,
                Purgatory(broker.timers),
                broker.clock,
                broker.timers,
                self._spawn,
                self._config,
                lambda: True,
                lambda: 10,
                lambda _: True,
            ),
            writer.write,
        )

    def _config(self, group_id: str) -> ShareGroupConfig:
        configs = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": TAKES[group_id],
            "errors.deadletterqueue.copy.record.enable": str(self.copies).lower(),
        }
        return effective_share_config(configs, self.broker.config)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sleep(self, seconds: float) -> None:
        if seconds:
            self.pauses.append(seconds)
            self.on_pause()
        await asyncio.sleep(0)

    def partition(self, topic: str) -> Partition:
        return self.broker.replicas.lookup.find(topic, None, 0)

    def write(self, record: Record) -> None:
        batch, partition = encode_batch([record]), self.partition(FLIGHTS.topic)
        partition.append_as_leader(memoryview(batch), parse_header(batch, 0), NOW_MS)

    async def reject_next(self, group_id: str) -> LedPartition:
        """Let a member of the group reject what it gets, and wait until nothing waits for its dead letter."""
        shared = self.delivery.open(group_id, KEYS[group_id])
        session = self.delivery.sessions.begin(SessionKey(group_id, "m"), None)
        found = await self.delivery.deliver(shared, session, ALL, 1 << 20, at_least_one=True)
        assert found is not None, "there is a record"
        rejected = [AcknowledgementBatch(each.first, each.last, [REJECT]) for each in found.acquired]
        shared.acknowledge("m", rejected, lambda _: None)
        async with asyncio.timeout(PATIENCE_S):
            while shared.records.count(RecordState.ARCHIVING) or self._tasks:
                self.broker.timers.pass_time()
                await asyncio.sleep(0.001)
        return shared

    def records(self, topic: str) -> list[Record]:
        log, found = self.partition(topic).log, list[Record]()
        data = memoryview(b"".join(each.file.read_at(0, each.size_bytes) for each in log.segments))
        while data:
            header = parse_header(data, 0)
            found += iterate_records(data, 0, header, 1 << 20)
            data = data[header.size_bytes :]
        return found


def groups_in(record: Record) -> list[bytes | None]:
    return [each.value for each in record.headers if each.key == "__dlq.errors.group"]


@pytest.mark.parametrize("copies", [True, False])
def test_two_groups_that_take_each_others_dead_letters_pass_records_of_one_size_on_and_the_broker_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, copies: bool
) -> None:
    async def go_round() -> None:
        world = World(tmp_path, copies=copies)
        world.write(Record(0, NOW_MS, b"key", b"value", [Header("trace", b"1")]))
        for _ in range(3):
            pilots = await world.reject_next(PILOTS)
            clerks = await world.reject_next(CLERKS)
        letters, kept = world.records(LETTERS), [CLERKS.encode()] if copies else []
        assert [groups_in(each) for each in letters] == [[b"pilots"], *[[b"pilots", *kept]] * 2]
        assert {each.value for each in letters} == ({b"value"} if copies else {None})
        assert (pilots.counts.dead_letters_in_circle, clerks.counts.dead_letters_in_circle) == (2, 3)
        world.broker.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(go_round())
    assert [each.split()[4] for each in caplog.messages if "go round" in each] == [CLERKS, PILOTS], "each says it once"


def test_a_dead_letter_waits_while_the_disk_of_its_topic_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def fill() -> None:
        world = World(tmp_path)
        world.write(Record(0, NOW_MS, b"key", b"value"))
        write = os.pwrite
        monkeypatch.setattr(os, "pwrite", refuse)
        world.on_pause = lambda: len(world.pauses) < 3 or monkeypatch.setattr(os, "pwrite", write)
        pilots = await world.reject_next(PILOTS)
        assert [each.value for each in world.records(LETTERS)] == [b"value"]
        assert (world.pauses, pilots.counts.dead_letters_failed, pilots.counts.dead_letters) == ([1, 2, 4], 3, 1)
        assert pilots.records.window.start == 1
        world.broker.stop()

    asyncio.run(fill())
