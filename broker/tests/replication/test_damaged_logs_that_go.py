"""A log that cannot be loaded is deleted with its topic, or after a reassignment, as any other log."""

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, OTHER, Broker, led

from barnabas_broker.metadata.documents import AnyDocument, tombstone_key, topic_key
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument, TopicDocument
from barnabas_broker.storage.disk.files import PosixFileSystem

FIRST_ID, OTHER_ID = UUID(int=7), UUID(int=8)
TOPIC = topic_key(FLIGHTS.topic), TopicDocument(FLIGHTS.topic, FIRST_ID, (led(HERE, 6, HERE),))


def tombstone(topic_id: UUID = FIRST_ID) -> tuple[str, AnyDocument]:
    return tombstone_key(topic_id), TombstoneDocument(FLIGHTS.topic, topic_id, NOW_MS, 1)


def directories(broker: Broker) -> list[str]:
    return [path.name.rpartition("-")[2] for path in broker.folder.parent.glob("*/*/")]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker whose disk has changed the first batch of its log."""
    broker = Broker(tmp_path, led(HERE, 5, HERE))
    broker.append(3)
    broker.partition.log.flush()
    segment = next(broker.folder.glob("*/*.log"))
    data = bytearray(segment.read_bytes())
    data[16] += 1
    segment.write_bytes(data)
    os.utime(segment, ns=(2**62, 2**62))  # A start then checks the segment.
    return broker


def test_a_damaged_log_is_deleted_with_its_topic_while_the_broker_runs(broker: Broker) -> None:
    broker.start_anew(TOPIC)
    assert broker.logs.failed.keys() == {FLIGHTS}
    broker.show_only(TOPIC, tombstone())
    broker.show_only(tombstone())
    broker.timers.pass_time(1)
    assert directories(broker) == ["delete"]
    assert broker.logs.failed == {}


def test_a_damaged_log_is_deleted_if_its_topic_was_deleted_while_the_broker_was_down(broker: Broker) -> None:
    broker.start_anew(tombstone())
    assert directories(broker) == ["delete"]
    assert broker.logs.failed == {}


def test_a_damaged_log_is_kept_if_another_topic_of_its_name_was_deleted(broker: Broker) -> None:
    broker.start_anew(tombstone(OTHER_ID))
    assert directories(broker) == ["0"]


@pytest.mark.parametrize(("epoch", "left"), [(7, ["delete", "0"]), (4, ["0"])])
def test_a_damaged_log_is_deleted_after_a_reassignment_unless_it_is_ahead_of_the_metadata(
    broker: Broker, epoch: int, left: list[str]
) -> None:
    """Its replica could otherwise never be created again."""
    broker.start_anew(TOPIC if epoch > 5 else elsewhere(epoch))
    broker.show_only(elsewhere(epoch))
    broker.replicas.bring_back()
    broker.timers.pass_time(1)
    back = PartitionState((HERE, OTHER), OTHER, epoch, (OTHER,), partition_epoch=epoch + 1)
    broker.show_only((TOPIC[0], TopicDocument(FLIGHTS.topic, FIRST_ID, (back,))))
    broker.timers.pass_time(1)
    assert sorted(directories(broker)) == sorted(left)


def elsewhere(epoch: int) -> tuple[str, AnyDocument]:
    state = PartitionState((OTHER,), OTHER, epoch, (OTHER,), partition_epoch=epoch)
    return TOPIC[0], TopicDocument(FLIGHTS.topic, FIRST_ID, (state,))


def test_a_damaged_log_is_kept_while_its_topic_id_cannot_be_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk with one bad sector may have more; the broker runs on."""
    broker.start_anew(TOPIC)
    read = PosixFileSystem.read

    def fail(files: PosixFileSystem, path: str) -> bytes:
        if path.endswith("/partition.metadata"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(files, path)

    monkeypatch.setattr(PosixFileSystem, "read", fail)
    broker.replicas.bring_back()
    broker.timers.pass_time(1)
    broker.show_only(TOPIC, tombstone())
    broker.show_only(tombstone(), (TOPIC[0], TopicDocument(FLIGHTS.topic, OTHER_ID, (led(HERE, 0, HERE),))))
    broker.timers.pass_time(1)
    assert directories(broker) == ["0"]
