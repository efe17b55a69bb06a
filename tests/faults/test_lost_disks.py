"""F22, F28: a log dir that vanishes, is read-only or full takes only its own partitions offline."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition
from faulty_broker import KAFKA_STORAGE_ERROR, FaultyBroker
from started_brokers import StartBroker

from harness.deadline import wait_for
from harness.mounts import fill, remount, small_disk

VALUES = [b"value %d" % number for number in range(100)]
MORE = [b"more %d" % number for number in range(10)]
TWO_DIRS = {"log_dirs": "disk/a,b"}
PARTITIONS = 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB for the broker's first log dir."""
    with small_disk(tmp_path / "broker-0" / "disk", 16) as path:
        yield path


def partitions_in(directory: Path, topic: str) -> list[int]:
    return sorted(int(path.name.rpartition("-")[2]) for path in directory.glob(f"{topic}-*"))


def fill_topic(broker: FaultyBroker, topic: str = "flights") -> tuple[list[int], list[int]]:
    """Make a topic with records; return its partitions in the first log dir and in the second."""
    broker.client.create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        broker.client.write(topic, VALUES, partition)
    first, second = (partitions_in(directory, topic) for directory in broker.log_dirs)
    assert len(first) == len(second) == PARTITIONS // 2
    return first, second


def check_lives(broker: FaultyBroker, partitions: list[int]) -> None:
    for partition in partitions:
        broker.client.write("flights", MORE, partition)
        assert broker.client.read("flights", partition)[: len(VALUES)] == VALUES


def check_back(broker: FaultyBroker, partitions: list[int]) -> None:
    """Check that the partitions of the returned log dir have all their records, and accept more."""
    wait_for(broker.ready, lambda answer: answer == "ok")
    wait_for(broker.offline_log_dirs, lambda count: count == 0)
    for partition in partitions:
        assert broker.client.read("flights", partition)[: len(VALUES)] == VALUES
        broker.client.write("flights", MORE, partition)


def test_a_log_dir_that_vanishes_is_offline_until_it_is_back(start_broker: StartBroker) -> None:
    broker = start_broker(log_dirs="a,b")
    lost, living = fill_topic(broker)
    away = broker.folder / "away"
    broker.log_dirs[0].rename(away)
    wait_for(broker.offline_log_dirs, lambda count: count == 1)
    for partition in lost:
        assert broker.client.error_of_write("flights", partition=partition) == KAFKA_STORAGE_ERROR
        assert f"flights-{partition}" in broker.ready()
    check_lives(broker, living)
    assert len(broker.lines("ERROR", f"log dir {broker.log_dirs[0]} is offline with")) == 1
    assert not broker.log_dirs[0].exists()
    away.rename(broker.log_dirs[0])
    check_back(broker, lost)
    assert broker.server.stop() == 0
    assert not broker.lines("ERROR", "failed; the next attempt is in")


def test_a_broker_starts_without_a_log_dir_and_does_not_create_its_partitions_elsewhere(
    start_broker: StartBroker,
) -> None:
    """A new, empty log elsewhere would hide the records, and consumers would start from offset 0."""
    broker = start_broker(log_dirs="disk/a,b")
    lost, living = fill_topic(broker)
    broker.server.kill()
    away = broker.folder / "away"
    disk = broker.folder / "disk"
    disk.rename(away)
    disk.write_text("no directory: the mount point of a disk that did not come up", encoding="utf-8")
    broker.server.start()
    assert broker.offline_log_dirs() == 1
    check_lives(broker, living)
    for partition in lost:
        assert broker.client.error_of_write("flights", partition=partition) == KAFKA_STORAGE_ERROR
        assert f"flights-{partition}" in broker.ready()
    assert partitions_in(broker.log_dirs[1], "flights") == living
    broker.client.create_topic("new", 2)
    broker.client.write("new", MORE, 1)
    disk.unlink()
    away.rename(disk)
    check_back(broker, lost)


def test_a_read_only_log_dir_is_offline_until_it_is_writable(start_broker: StartBroker, disk: Path) -> None:
    broker = start_broker(**TWO_DIRS)
    lost, living = fill_topic(broker)
    assert broker.server.stop() == 0
    remount(disk, "ro")
    broker.server.start()
    assert broker.offline_log_dirs() == 1
    check_lives(broker, living)
    assert broker.client.error_of_write("flights", partition=lost[0]) == KAFKA_STORAGE_ERROR
    remount(disk, "rw")
    check_back(broker, lost)


def test_a_full_disk_refuses_appends_and_serves_reads_until_there_is_space(
    start_broker: StartBroker, disk: Path
) -> None:
    broker = start_broker(**TWO_DIRS)
    full, living = fill_topic(broker)
    ballast = fill(disk)
    for _ in range(20):
        assert broker.client.error_of_write("flights", b"x" * 100_000, full[0]) == KAFKA_STORAGE_ERROR
    assert broker.client.read("flights", full[0])[: len(VALUES)] == VALUES
    check_lives(broker, living)
    assert 1 <= len(broker.lines("no space left")) <= 5
    ballast.unlink()
    broker.client.write("flights", MORE, full[0])
    check_back(broker, full)
    broker.client.commit("readers", TopicPartition("flights", 0, 3))
    assert broker.server.stop() == 0


def create_topics(broker: FaultyBroker, count: int) -> None:
    for number in range(count):
        broker.client.create_topic(f"topic-{number}", 100)


def test_a_metadata_store_on_a_full_disk_refuses_changes_only(start_broker: StartBroker, disk: Path) -> None:
    broker = start_broker(log_dirs="logs", metadata_store=f"sqlite:///{disk / 'metadata.sqlite'}")
    broker.client.create_topic("flights", 1)
    broker.client.write("flights", VALUES)
    ballast = fill(disk)
    with pytest.raises(KafkaException):
        create_topics(broker, 50)
    broker.client.write("flights", MORE)
    assert broker.client.read("flights") == VALUES + MORE
    ballast.unlink()

    def created() -> bool:
        try:
            broker.client.create_topic("at-last", 1)
        except KafkaException:
            return False
        return True

    wait_for(created)
    broker.client.write("at-last", MORE)
