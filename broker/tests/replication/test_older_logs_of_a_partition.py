"""An older log of a partition, which was set aside when a later one took its place, never passes for the later one."""

import os
import shutil
from pathlib import Path
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, OTHER, Broker, led

from barnabas_broker.metadata.documents import AnyDocument, topic_key
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.storage.errors import LogDirFailed

OLD, LATER = 3, 5


def led_here(epoch: int) -> PartitionState:
    return PartitionState((HERE, OTHER), HERE, epoch, (HERE,), partition_epoch=epoch)


def the_topic(state: PartitionState) -> tuple[str, AnyDocument]:
    return topic_key(FLIGHTS.topic), TopicDocument(FLIGHTS.topic, UUID(int=7), (state,))


@pytest.fixture
def later_dir(tmp_path: Path) -> Path:
    """That of the later log."""
    return tmp_path / "more"


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A log dir fails, its replica goes elsewhere, comes back to the other log dir, and then the first one is back."""
    broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1))
    broker.append(OLD)
    broker.lose_disk()
    take_away(broker.folder)
    broker.show(PartitionState((OTHER,), OTHER, 5, (OTHER,), partition_epoch=5))
    broker.timers.pass_time(1)
    broker.show(PartitionState((HERE, OTHER), OTHER, 5, (OTHER,), partition_epoch=6))
    broker.replicas.bring_back()
    broker.timers.pass_time(1)
    broker.show(led_here(7))
    broker.append(LATER)
    bring(broker.folder)
    look(broker)
    assert [stray.log_dir for stray in broker.logs.strays] == [str(broker.folder)]
    return broker


def take_away(folder: Path) -> None:
    folder.rename(folder.parent / "away")
    folder.write_text("no directory: its disk did not come up", encoding="utf-8")


def bring(folder: Path) -> None:
    folder.unlink()
    (folder.parent / "away").rename(folder)


def look(broker: Broker) -> None:
    """What the chore does that looks at disks, twice: the second time with what it has read."""
    for _ in range(2):
        for stray, wanted in broker.logs.strays.wanted_logs():
            outcome = broker.logs.strays.read(stray, wanted)
            assert not isinstance(outcome, LogDirFailed)
            broker.logs.stray_read(stray, wanted, outcome)
        broker.find_disk()
        broker.timers.pass_time(1)


def is_served_whole(broker: Broker, later_dir: Path) -> bool:
    log = broker.partition.log
    return broker.partition.failure is None and (log.log_end_offset, log.log_dir) == (LATER, str(later_dir))


def test_not_at_a_start_without_the_log_dir_of_the_later_one(broker: Broker, later_dir: Path) -> None:
    """It would lead, and what was acknowledged would be lost."""
    broker.stop()
    take_away(later_dir)
    broker.start_anew(the_topic(led_here(8)))
    look(broker)
    assert broker.replicas.lookup.hosted(FLIGHTS) is None
    bring(later_dir)
    look(broker)
    assert is_served_whole(broker, later_dir)


def test_not_while_the_log_dir_of_the_later_one_has_failed(broker: Broker, later_dir: Path) -> None:
    """The later one would be set aside when it is back."""
    broker.replicas.failures.log_failed(FLIGHTS, LogDirFailed(str(later_dir), "the disk failed"))
    take_away(later_dir)
    broker.show(led_here(8))
    look(broker)
    assert broker.partition.failure is not None
    bring(later_dir)
    look(broker)
    assert is_served_whole(broker, later_dir)


@pytest.mark.parametrize("is_in_its_dir", [False, True])
def test_not_while_the_later_one_is_damaged(broker: Broker, later_dir: Path, is_in_its_dir: bool) -> None:
    """In the same log dir it could not take its place: that would count as a failure of the disk, again and again."""
    broker.partition.log.flush()
    directory = later_dir / str(FLIGHTS)
    if is_in_its_dir:
        shutil.copytree(directory, f"{directory}.{'0' * 32}-stray")
    damage(next(directory.glob("*.log")))
    broker.start_anew(the_topic(led_here(8)))
    assert broker.logs.failed
    look(broker)
    assert broker.replicas.lookup.hosted(FLIGHTS) is None


def damage(segment: Path) -> None:
    """In its first batch; as if it was written later, so that a start looks into it."""
    data = bytearray(segment.read_bytes())
    data[16] += 1
    segment.write_bytes(data)
    os.utime(segment, ns=(2**62, 2**62))
