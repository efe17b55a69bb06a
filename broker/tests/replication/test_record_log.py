"""F40, F47, F48: the group coordinator over a real partition of `__consumer_offsets`, before and after a crash."""

import asyncio
import random
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
from one_replica import at_once

from barnabas_broker.app.coordinators import ImageTopics
from barnabas_broker.app.loop_turns import LoopTimers, SystemClock
from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.messages import CommitRequest, CommittedOffset
from barnabas_broker.coordinators.groups.shard import GroupEnvironment
from barnabas_broker.coordinators.modern.shard import ModernEnvironment
from barnabas_broker.coordinators.share.share_groups import ShareEnvironment
from barnabas_broker.coordinators.share_state.persister import SharePersister
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.record_log import RecordLog
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.replica_states import ReplicaEnvironment
from barnabas_broker.storage.disk.files import OpenFiles, PosixFile, PosixFileSystem, Trash
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.storage.producer_state import Verification
from barnabas_broker.wire.key_values import KeyValueList, Marker, ProducerEpoch
from barnabas_broker.wire.record_batch import parse_header
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.group_configs import effective_group_config, effective_share_config
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TopicPartition
from harness.deadline import PATIENCE_S

TOPIC = TopicDocument(CONSUMER_OFFSETS, UUID(int=5), (PartitionState((1,), 1, 0, (1,)),), {"cleanup.policy": "compact"})

NO_PERSISTER = cast("SharePersister", None)
"""The persister of a broker without share groups."""


class NoFollowers:
    """A fetching part for partitions with one replica."""

    def follow(self, partition: Partition) -> None:
        raise AssertionError(f"{partition.topic_partition} has no other leader")

    def go_on(self, partition: Partition) -> None:
        pass

    def unfollow(self, partition: Partition) -> None:
        """Do nothing: the partition was not fetched."""


def _alone(clock: SystemClock, timers: LoopTimers) -> ReplicaEnvironment:
    def nothing(_: object) -> None:
        """Do nothing: no ISR changes, and no other broker could lead."""

    return ReplicaEnvironment(
        clock,
        timers,
        Purgatory(timers),
        NoFollowers(),
        nothing,
        nothing,
        nothing,
        nothing,
        lambda: True,
        lambda: None,
    )


class Broker:
    """The parts of a broker that a coordinator needs."""

    def __init__(self, folder: Path, read_bytes: int = 5 * 1024 * 1024, codec: int = 0) -> None:
        clock, timers = SystemClock(), LoopTimers(asyncio.get_running_loop())
        environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
        settings = LogManagerSettings([str(folder)])
        self.logs = LogManager(environment, clock, settings, BrokerIdentity("c", 1), lambda _: LogConfig())
        self.logs.load()
        image = MetadataImage()
        image.topics[TOPIC.name] = TOPIC
        config = parse_broker_config({"node.id": "1", "log.dirs": str(folder)})
        self.replicas = ReplicaManager(1, config, self.logs, image, _alone(clock, timers))
        at_once(self.replicas.start())
        self.log = RecordLog(CONSUMER_OFFSETS, self.replicas, clock, codec, read_bytes)
        environment_of_groups = GroupEnvironment(
            config,
            self.log,
            clock,
            timers,
            dict,
            is_awake=lambda: True,
            new_id=lambda: "1",
            modern=ModernEnvironment(ImageTopics(image), lambda _: effective_group_config({}, config), lambda: False),
            share=ShareEnvironment(lambda _: effective_share_config({}, config), lambda: False, NO_PERSISTER),
        )
        self.groups = GroupCoordinator(environment_of_groups, 1)

    async def elected(self) -> "Broker":
        """Return when the groups are loaded."""
        self.groups.runtime.elect(0, 0)
        while True:
            try:
                self.groups.committed("readers")
            except ApiError:
                await asyncio.sleep(0.001)
            else:
                return self

    async def commit(
        self, group_id: str, partition: int, offset: int, metadata: str = "", producer: ProducerEpoch | None = None
    ) -> None:
        """Send an OffsetCommit of a client that is no member, or a TxnOffsetCommit."""
        committed: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
        verification = None if producer is None else self._verified(producer)
        offsets = [(TopicPartition("flights", partition), CommittedOffset(offset, metadata=metadata))]
        self.groups.commit(CommitRequest(group_id, "", None, -1, 9, offsets, producer), committed.set_result)
        assert await committed == [ErrorCode.NONE]
        del verification

    def _verified(self, producer: ProducerEpoch) -> Verification:
        """Return a verification of the producer's transaction, as the coordinator's response leaves it."""
        log = self.replicas.lookup.find(CONSUMER_OFFSETS, None, 0).log
        return log.producers.verifications.begin(*producer, has_own_epoch=True)

    async def end(self, producer: ProducerEpoch, *, commit: bool) -> ErrorCode:
        """Write a marker for the transaction."""
        ended: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.groups.end_transaction(0, Marker(*producer, 0, commit), 0, ended.set_result)
        return await ended

    def crash(self) -> None:
        """End the process: no file is closed properly, and the locks of the directories are released."""
        for log_dir in self.logs.log_dirs:
            log_dir.fail(LogDirFailed(log_dir.path, "the process dies"))


async def test_committed_offsets_survive_a_crash(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).elected()
    for number in range(300):
        await broker.commit(f"group-{number % 7}", number % 11, number, "x" * 1000)
    deleted: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    broker.groups.delete_group("group-3", deleted.set_result)
    assert await deleted is ErrorCode.NONE
    before = {f"group-{number}": dict(broker.groups.committed(f"group-{number}")) for number in range(7)}
    broker.crash()
    again = await Broker(tmp_path).elected()
    assert before == {group_id: dict(again.groups.committed(group_id)) for group_id in before}
    assert before["group-3"] == {}
    assert {group.group_id for group in again.groups.list_groups()} == before.keys() - {"group-3"}


async def test_offsets_of_transactions_follow_their_markers_after_a_crash(tmp_path: Path) -> None:
    committed, aborted, still_open = ProducerEpoch(7, 0), ProducerEpoch(8, 0), ProducerEpoch(9, 0)
    broker = await Broker(tmp_path).elected()
    for number in range(3):
        await broker.commit("readers", number, 1)
    for number, producer in enumerate((committed, aborted, still_open)):
        await broker.commit("readers", number, 2, producer=producer)
    assert await broker.end(committed, commit=True) is ErrorCode.NONE
    assert await broker.end(aborted, commit=False) is ErrorCode.NONE
    broker.crash()
    again = await Broker(tmp_path).elected()
    offsets = {each.partition: at.offset for each, at in again.groups.committed("readers").items()}
    assert offsets == {0: 2, 1: 1, 2: 1}
    assert again.groups.unstable("readers") == {TopicPartition("flights", 2)}
    assert await again.end(committed._replace(epoch=-1), commit=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await again.end(still_open, commit=True) is ErrorCode.NONE
    assert again.groups.committed("readers")[TopicPartition("flights", 2)].offset == 2


async def test_a_log_is_read_in_pieces_and_larger_batches_are_read_whole(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).elected()
    for number in range(50):
        await broker.commit("readers", number, number, "x" * (number * 50))
    broker.crash()
    again = await Broker(tmp_path, read_bytes=500).elected()
    assert {each.partition: at.offset for each, at in again.groups.committed("readers").items()} == {
        number: number for number in range(50)
    }


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_records_are_written_with_the_codec_that_is_set(tmp_path: Path, codec: int) -> None:
    """Set offsets.topic.compression.codec; records written with another codec are read as well."""
    plain = await Broker(tmp_path).elected()
    await plain.commit("readers", 0, 7, "x" * 1000)
    plain.crash()
    broker = await Broker(tmp_path, codec=codec).elected()
    await broker.commit("readers", 1, 8, "x" * 1000)
    broker.crash()
    (segment,) = tmp_path.rglob("*.log")
    data = segment.read_bytes()
    first = parse_header(data, 0)
    codecs = [first.attributes & 7, parse_header(data, first.length + 12).attributes & 7]
    assert codecs == [0, codec]
    again = await Broker(tmp_path).elected()
    committed = {each.partition: at.offset for each, at in again.groups.committed("readers").items()}
    assert committed == {0: 7, 1: 8}


async def test_loading_groups_is_retried_after_the_disk_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await Broker(tmp_path).elected()
    await broker.commit("readers", 0, 7)
    read_at, failing = PosixFile.read_at, [True]

    def failing_once(file: PosixFile, position: int, length: int) -> bytes:
        if failing:
            failing.clear()
            raise OSError(5, "Input/output error")
        return read_at(file, position, length)

    monkeypatch.setattr(PosixFile, "read_at", failing_once)
    broker.groups.runtime.resign(0)
    await broker.elected()
    assert broker.groups.committed("readers")[TopicPartition("flights", 0)].offset == 7
    assert "the disk failed" in caplog.text


async def test_a_coordinator_whose_log_has_no_leader_here_answers_not_coordinator(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).elected()
    broker.replicas.lookup.find(CONSUMER_OFFSETS, None, 0).resign()
    answered: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()
    offsets = [(TopicPartition("flights", 0), CommittedOffset(1))]
    broker.groups.commit(CommitRequest("readers", "", None, -1, 9, offsets), answered.set_result)
    assert await answered == [ErrorCode.NOT_COORDINATOR]


async def test_loading_groups_is_retried_if_records_cannot_be_decoded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await Broker(tmp_path).elected()
    await broker.commit("readers", 0, 1)
    segment = next(tmp_path.glob("__consumer_offsets-0/*.log"))
    data = bytearray(segment.read_bytes())
    data[61] = 0x7F  # The length of the first record.
    segment.write_bytes(data)
    broker.groups.runtime.resign(0)
    broker.groups.runtime.elect(0, 0)
    async with asyncio.timeout(PATIENCE_S):
        while "will try again" not in caplog.text:
            await asyncio.sleep(0.001)
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        broker.groups.committed("readers")
    broker.groups.runtime.stop()


async def test_appends_are_answered_in_order_when_an_isr_that_shrinks_to_one_commits_them(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    partition = broker.replicas.lookup.find(CONSUMER_OFFSETS, None, 0)
    partition.apply(PartitionState((1, 2), 1, 1, (1, 2), partition_epoch=1))
    told: list[tuple[str, ApiError | None]] = []
    broker.log.append(0, [(b"a", b"1")], lambda error: told.append(("first", error)))
    await asyncio.sleep(0)
    assert told == []
    partition.apply(PartitionState((1, 2), 1, 1, (1,), partition_epoch=2))
    broker.log.append(0, [(b"a", b"2")], lambda error: told.append(("second", error)))
    await asyncio.sleep(0)
    assert told == [("first", None), ("second", None)]


async def test_a_wait_for_the_end_of_the_log_fails_when_leadership_ends_first(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    partition = broker.replicas.lookup.find(CONSUMER_OFFSETS, None, 0)
    partition.apply(PartitionState((1, 2), 1, 1, (1, 2), partition_epoch=1))
    told: list[ApiError | None] = []
    broker.log.append(0, [(b"a", b"1")], told.append)
    broker.log.when_committed(0, told.append)
    partition.apply(PartitionState((1, 2), 2, 2, (2,), partition_epoch=2))
    broker.log.when_committed(0, told.append)
    await asyncio.sleep(0)
    assert [error and error.code for error in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3


async def _records(log: RecordLog) -> list[tuple[bytes, bytes | None]]:
    ready, found = asyncio.Event(), []
    for some in log.read(0, ready.set):
        if some is None:
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()
            ready.clear()
        else:
            assert isinstance(some, KeyValueList)
            found += some.records
    return found


async def test_a_log_that_keeps_all_yields_them_in_order_from_where_it_was_pruned(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = RecordLog(CONSUMER_OFFSETS, broker.replicas, SystemClock(), 0, 1 << 20, keeps_all=True)
    written = [(b"key", b"%d" % number) for number in range(4)]
    for record in written:
        committed: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        log.append(0, [record], committed.set_result)
        assert await committed is None
    assert log.end_offset(0) == 4
    assert await _records(log) == written
    log.delete_before(0, 2)
    assert await _records(log) == written[2:]
    log.delete_before(0, 1)
    log.delete_before(0, 99)
    assert await _records(log) == written[2:], "an earlier start and one that is not committed change nothing"
    broker.crash()
    again = RecordLog(CONSUMER_OFFSETS, Broker(tmp_path).replicas, SystemClock(), 0, 1 << 20, keeps_all=True)
    assert (await _records(again))[-2:] == written[2:], "a crash may bring earlier records back"
