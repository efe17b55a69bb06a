"""A topic of many partitions is created over several turns of the loop, so that other work is not delayed."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from one_replica import at_once

from barnabas_broker.metadata.documents import ImageChange, encode, tombstone_key, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Change, Changes
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.replica_states import ReplicaEnvironment
from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import MADE_PARTITIONS
from barnabas_core.topic_partition import CONSUMER_OFFSETS
from harness.manual_timers import ManualTimers

HERE, ELSEWHERE = 1, 2
COUNT = 3 * MADE_PARTITIONS


class Followed:
    """The partitions that are fetched from other leaders, by number."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()

    def follow(self, partition: Partition) -> None:
        self.numbers.add(partition.topic_partition.partition)

    def go_on(self, partition: Partition) -> None:
        pass

    def unfollow(self, partition: Partition) -> None:
        self.numbers.discard(partition.topic_partition.partition)


class Broker:
    """A replica manager and the image that it follows."""

    def __init__(self, folder: Path) -> None:
        self.timers, self.followed, self.image = ManualTimers(), Followed(), MetadataImage()
        environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
        settings = LogManagerSettings([str(folder)])
        logs = LogManager(environment, self.timers.clock, settings, BrokerIdentity("c", HERE), lambda _: LogConfig())
        logs.load()

        def nothing(_: object) -> None:
            """Do nothing: these tests change no ISR and report nothing."""

        replica_environment = ReplicaEnvironment(
            self.timers.clock,
            self.timers,
            Purgatory(self.timers),
            self.followed,
            nothing,
            nothing,
            nothing,
            nothing,
            lambda: True,
            lambda: None,
        )
        config = parse_broker_config({"node.id": str(HERE), "log.dirs": str(folder)})
        self.replicas = ReplicaManager(HERE, config, logs, self.image, replica_environment)
        at_once(self.replicas.start())

    def show(self, *states: PartitionState, name: str = "t", topic_id: int = 5) -> None:
        """Set the topic in the image; without partitions it is deleted."""
        document = TopicDocument(name, UUID(int=topic_id), states)
        if not states:
            tombstone = TombstoneDocument(name, document.topic_id, 0)
            self._apply(tombstone_key(document.topic_id), encode(tombstone))
        self._apply(topic_key(name), encode(document) if states else None)

    def _apply(self, key: str, value: bytes | None) -> None:
        revision = self.image.revision + 1
        self.image.apply_changes(Changes(revision, (Change(revision, key, value),)))

    def made(self) -> list[int]:
        return sorted(partition.topic_partition.partition for partition in self.replicas.lookup.partitions())

    def error(self, number: int) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.replicas.lookup.find("t", None, number)
        return caught.value.code


def state(
    leader: int = HERE, *, leader_epoch: int = 0, replicas: tuple[int, ...] = (HERE, ELSEWHERE)
) -> PartitionState:
    return PartitionState(replicas, leader, leader_epoch, replicas, partition_epoch=leader_epoch)


def test_a_partition_that_is_not_created_yet_is_neither_led_nor_offline(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.show(*[state()] * COUNT)
    assert broker.made() == list(range(MADE_PARTITIONS))
    assert broker.replicas.lookup.find("t", UUID(int=5).bytes, 0).leader
    assert broker.error(COUNT - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.replicas.offline() == []
    broker.timers.turn()
    assert broker.made() == list(range(2 * MADE_PARTITIONS))
    broker.timers.turn()
    assert broker.made() == list(range(COUNT))
    assert broker.timers.waiting == []
    assert len(list(tmp_path.glob("t-*"))) == COUNT


def test_partitions_are_created_from_the_metadata_of_their_turn(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.show(*[state()] * COUNT)
    *others, last = range(COUNT)
    moved = state(ELSEWHERE, leader_epoch=1, replicas=(ELSEWHERE,))
    broker.show(*[state(ELSEWHERE, leader_epoch=1)] * len(others), moved)
    broker.timers.pass_time()
    assert broker.made() == others
    assert broker.followed.numbers == set(others)
    assert broker.replicas.lookup.find("t", None, others[-1]).leader_epoch == 1
    assert broker.error(last) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_topic_that_is_deleted_during_its_creation_leaves_no_partitions(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.show(*[state()] * COUNT)
    broker.show()
    broker.timers.pass_time()
    assert broker.made() == []
    assert broker.error(0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_recreated_during_its_creation_has_its_new_id(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.show(*[state()] * COUNT)
    broker.show(*[state()] * COUNT, topic_id=6)
    broker.timers.pass_time()
    assert broker.made() == list(range(COUNT))
    assert {partition.topic_id for partition in broker.replicas.lookup.partitions()} == {UUID(int=6)}


def test_a_broker_that_shuts_down_creates_no_more_partitions(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.show(*[state()] * COUNT)
    broker.replicas.stop()
    broker.timers.turn()
    assert broker.made() == list(range(MADE_PARTITIONS))


def test_a_broker_that_shuts_down_leads_no_partition(tmp_path: Path) -> None:
    """A batch that was checked meanwhile would otherwise be appended after the mark of a clean shutdown."""
    broker = Broker(tmp_path)
    broker.show(state())
    broker.timers.pass_time()
    (partition,) = broker.replicas.lookup.partitions()
    led = [partition.leader is not None]
    broker.replicas.stop()
    led.append(partition.leader is not None)
    assert led == [True, False]
    batch = encode_batch([Record(0, broker.timers.clock.now_ms(), None, b"value")])
    with pytest.raises(ApiError) as refused:
        partition.append_as_leader(memoryview(batch), parse_header(batch, 0), broker.timers.clock.now_ms())
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_partitions_of_the_group_coordinators_topic_are_created_at_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.show(*[state()] * COUNT)
    broker.show(*[state()] * COUNT, name=CONSUMER_OFFSETS, topic_id=6)
    assert all(broker.replicas.lookup.find(CONSUMER_OFFSETS, None, number).leader for number in range(COUNT))
    assert broker.error(COUNT - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.timers.pass_time()
    assert len(broker.made()) == 2 * COUNT


def test_a_change_of_one_partition_touches_no_other_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(tmp_path)
    broker.show(*[state()] * 3)
    known, touched = broker.image.topics["t"], 0

    def touch(self: Partition, what: object, real: Callable[[Partition, object], None]) -> None:
        nonlocal touched
        touched += 1
        real(self, what)

    for name in ("apply", "configure"):
        real = getattr(Partition, name)
        monkeypatch.setattr(Partition, name, lambda self, what, real=real: touch(self, what, real))
    changed = msgspec.structs.replace(known.partitions[1], leader=ELSEWHERE, leader_epoch=1, partition_epoch=1)
    before, _, after = known.partitions
    show_states(broker, (before, changed, after))
    assert touched == 1
    assert broker.followed.numbers == {1}
    show_states(broker, (before, changed, after), {"segment.bytes": "1048576"})
    assert touched == 4


def show_states(broker: Broker, states: tuple[PartitionState, ...], configs: Mapping[str, str] | None = None) -> None:
    """Change the topic as an image does if it has several documents: unchanged states stay the same objects."""
    known = broker.image.topics["t"]
    document = msgspec.structs.replace(known, partitions=states, configs=dict(configs or {}))
    broker.image.topics["t"] = document
    broker.replicas._image_changed(ImageChange(changed=(document,)))
