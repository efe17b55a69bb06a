"""The commands of scenarios of one replica of flights-0 on broker 1 (`harness.scenarios`)."""

import asyncio
import os
import shutil
from pathlib import Path
from uuid import UUID

from one_replica import FLIGHTS, NOW_MS, Broker

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.metadata.documents import AnyDocument, tombstone_key, topic_key
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument, TopicDocument
from barnabas_broker.replication.replica_states import ReplicaState
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.replica_moves import ReplicaMove
from barnabas_broker.wire.record_batch import assign_offset
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LONG_MAX

BATCH_BYTES = len(encode_batch([Record(0, NOW_MS, None, b"value")]))
TOPIC_IDS = {"first": UUID(int=7), "later": UUID(int=8)}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


def partition_state(
    leader: str, epoch: str, version: str = "", replicas: str = "1,2", isr: str = "", elr: str = "", lacking: str = ""
) -> PartitionState:
    """Return the state that a command describes; the partition epoch is `version`, or `epoch`."""
    return PartitionState(
        numbers(replicas),
        int(leader),
        int(epoch),
        numbers(isr),
        partition_epoch=int(version or epoch),
        elr=numbers(elr),
        lacking=numbers(lacking),
    )


class Replica:
    """The commands. `metadata` sets what the store has: `topic=first` has id 7, `topic=later` id 8."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.documents: list[tuple[str, AnyDocument]] = []
        self.broker = Broker(folder, PartitionState((), -1, -1, ()))
        self.broker.start_anew()

    def metadata(self, topic: str = "first", deleted: str = "", **state: str) -> None:
        self.documents = []
        if deleted:
            topic_id = TOPIC_IDS[deleted]
            self.documents.append((tombstone_key(topic_id), TombstoneDocument(FLIGHTS.topic, topic_id, NOW_MS, 1)))
        if state:
            document = TopicDocument(FLIGHTS.topic, TOPIC_IDS[topic], (partition_state(**state),))
            self.documents.append((topic_key(FLIGHTS.topic), document))
        self.broker.show_only(*self.documents)
        self.broker.timers.pass_time(1)

    def append(self, count: str) -> None:
        self.broker.append(int(count))

    def fetched(self, by: str, offset: str) -> None:
        self.broker.partition.fetched_by(int(by), -1, int(offset), 0, 0)

    def fetch(self, count: str, epoch: str, committed: str) -> None:
        log = self.broker.partition.log
        for offset in range(log.log_end_offset, log.log_end_offset + int(count)):
            data = encode_batch([Record(0, NOW_MS, None, b"value")])
            assign_offset(data, 0, offset, int(epoch))
            partition = self.broker.partition
            partition.follower.append(memoryview(data), partition.leader_epoch, int(committed), 0, NOW_MS)

    def diverged(self, epoch: str, end: str) -> None:
        self.broker.partition.follower.diverged(int(epoch), int(end))

    def second(self) -> None:
        """Run the periodic task that checks disks, and let a second pass."""
        broker = self.broker
        asyncio.run(LogTasks(broker.logs, broker.replicas, broker.clock, lambda work: work.close()).check_disks())
        broker.timers.pass_time(1)

    def crash(self) -> None:
        for log_dir in self.broker.logs.log_dirs:
            log_dir.fail(LogDirFailed(log_dir.path, "the process dies"))
        self.broker.logs.log_dirs.clear()
        self.restart()

    def stop(self) -> None:
        self.broker.stop()
        self.broker.logs.log_dirs.clear()

    def restart(self) -> None:
        self.broker.start_anew(*self.documents)
        self.broker.timers.pass_time(1)

    def disk_fails(self) -> None:
        self.broker.replicas.failures.log_failed(FLIGHTS, LogDirFailed(str(self.broker.folder), "the disk failed"))
        self.broker.timers.pass_time(1)

    def disk_goes(self) -> None:
        self.broker.folder.rename(self.folder / "away")
        self.broker.folder.write_text("no directory")

    def disk_comes(self) -> None:
        self.broker.folder.unlink()
        (self.folder / "away").rename(self.broker.folder)

    def disk_is_replaced(self) -> None:
        shutil.rmtree(self.broker.folder)

    def records_go(self, left: str) -> None:
        """Cut the segment to so many records; each is a batch of its own, and all have the same size."""
        [segment] = self.broker.folder.glob("flights-0/*.log")
        data = segment.read_bytes()
        segment.write_bytes(data[: int(left) * BATCH_BYTES])

    def log_goes(self) -> None:
        shutil.rmtree(self.broker.folder / str(FLIGHTS))

    def damage(self) -> None:
        """Change the first batch, and date the segment later than the clean shutdown."""
        [segment] = self.broker.folder.glob("flights-0/*.log")
        data = bytearray(segment.read_bytes())
        data[16] += 1
        segment.write_bytes(data)
        os.utime(segment, ns=(2**62, 2**62))

    def begin_move(self) -> ReplicaMove:
        moves = self.broker.logs.moves
        move = moves.start(FLIGHTS, str(self.folder / "more"))
        assert move is not None
        move.copy(move.log.segments.size_bytes)
        moves.sync(move)
        return move

    def move(self) -> None:
        self.broker.partition.move_to(self.broker.logs.moves.finish(self.begin_move()))

    def empty_trash(self) -> None:
        logs = self.broker.logs
        logs.remove_files(logs.due_deletions(LONG_MAX))

    def rename(self) -> None:
        """Give a log that was set aside its name back, as an operator does."""
        [stray] = self.folder.glob("*/*-stray")
        shutil.rmtree(stray.parent / str(FLIGHTS), ignore_errors=True)
        for checkpoint in stray.parent.glob("*-checkpoint"):
            checkpoint.unlink()
        stray.rename(stray.parent / str(FLIGHTS))

    def describe(self) -> str:
        lines = [self._described(record.state) for record in self.broker.replicas.states.of(*ReplicaState)]
        reports = ("offline", self.broker.offline_reports), ("lost", self.broker.losses), ("ahead", self.broker.ahead)
        for name, reported in reports:
            epochs = [getattr(each[FLIGHTS], "epoch", each[FLIGHTS]) for each in reported[-1:]]
            lines += [f"reports it as {name} in epoch {epoch}" for epoch in epochs]
            reported.clear()
        folders = sorted(path for path in self.folder.glob("*/flights-*") if path.is_dir())
        names = [f"{path.parent.name}/{path.name[:9]}{path.name[42:]}" for path in folders]
        return "\n".join([*lines, f"on disk: {', '.join(names) or 'nothing'}"])

    def _described(self, state: ReplicaState) -> str:
        partition = self.broker.replicas.lookup.hosted(FLIGHTS)
        if partition is None:
            return state.value
        follows = FLIGHTS in self.broker.fetching.followed
        does = "leads" if partition.leader is not None else "follows" if follows else "waits"
        does = does if state is ReplicaState.ONLINE else "is not served"
        where, log = Path(partition.log.log_dir).name, partition.log
        ends = f"ends at {log.log_end_offset}, committed {partition.log.high_watermark}"
        return f"{state.value}: {does} in epoch {partition.leader_epoch}, {ends}, in {where}"
