"""Logs are deleted only by a tombstone or a reassignment; logs of topics that the metadata lacks stay, unused."""

import shutil
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, OTHER, Broker, led

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.metadata.documents import AnyDocument, tombstone_key, topic_key
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument, TopicDocument
from barnabas_core.topic_partition import TopicPartition

TOPIC_ID, LATER_ID = UUID(int=7), UUID(int=8)
HOUR_MS = 3_600_000


def the_topic(state: PartitionState, topic_id: UUID = TOPIC_ID) -> tuple[str, AnyDocument]:
    return topic_key(FLIGHTS.topic), TopicDocument(FLIGHTS.topic, topic_id, (state,))


def a_tombstone(topic_id: UUID = TOPIC_ID) -> tuple[str, AnyDocument]:
    return tombstone_key(topic_id), TombstoneDocument(FLIGHTS.topic, topic_id, NOW_MS, 1)


def states(broker: Broker) -> list[str]:
    """Return the marks of the partition's directories; "" for one in use."""
    names = [path.name for path in broker.folder.parent.glob("*/*") if path.is_dir()]
    return sorted(name.rpartition("-")[2] if "." in name else "" for name in names)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    started = Broker(tmp_path, led(HERE, 5, HERE))
    started.append(3)
    return started


def test_a_topic_that_vanishes_from_the_metadata_is_still_served(broker: Broker) -> None:
    broker.show_only()
    broker.append(1)
    assert broker.partition.log.log_end_offset == 4
    assert states(broker) == [""]


def set_aside(broker: Broker) -> None:
    """Set the log aside, as an earlier incarnation of the broker does to make room for another log."""
    broker.start_anew()
    broker.logs.set_aside(FLIGHTS, "it is in the way")
    broker.start_anew()
    assert states(broker) == ["stray"]


def test_a_log_of_an_unknown_topic_is_kept_unserved_until_its_topic_is_known(broker: Broker) -> None:
    broker.start_anew()
    assert states(broker) == [""]
    assert broker.replicas.lookup.hosted(FLIGHTS) is None
    assert broker.logs.strays.totals()[str(broker.folder)].logs == 1
    assert broker.logs.strays.totals()[str(broker.folder)].size_bytes > 0
    assert broker.logs.due_deletions(NOW_MS + HOUR_MS) == []
    broker.start_anew(the_topic(led(HERE, 6, HERE)))
    assert broker.partition.log.log_end_offset == 3
    assert states(broker) == [""]
    assert broker.logs.strays.totals() == {}
    broker.append(1)


async def check_disks(broker: Broker) -> None:
    await LogTasks(broker.logs, broker.replicas, broker.clock, lambda _: None).check_disks()
    broker.timers.pass_time(1)


async def test_a_stray_log_removed_by_hand_is_forgotten_when_its_topic_is_deleted(broker: Broker) -> None:
    """The broker would otherwise search all logs for it every second, for ever."""
    set_aside(broker)
    for directory in broker.folder.glob("*-stray"):
        shutil.rmtree(directory)
    broker.show_only(a_tombstone())
    await check_disks(broker)
    assert len(broker.logs.strays) == 0
    assert broker.logs.due_deletions(NOW_MS + HOUR_MS) == []


def test_a_tombstone_deletes_the_log_of_its_topic(broker: Broker) -> None:
    assert states(broker) == [""]
    broker.show_only(a_tombstone(), the_topic(led(HERE, 5, HERE)))  # The topic's document is deleted next.
    assert states(broker) == ["delete"]
    broker.show_only(a_tombstone())
    assert states(broker) == ["delete"]


def test_a_tombstone_deletes_the_log_of_a_topic_deleted_while_the_broker_was_down(broker: Broker) -> None:
    broker.start_anew(a_tombstone())
    assert states(broker) == ["delete"]


def test_a_tombstone_deletes_a_log_that_was_set_aside(broker: Broker) -> None:
    set_aside(broker)
    broker.show_only(a_tombstone())
    assert states(broker) == ["delete"]
    assert broker.logs.strays.totals() == {}
    assert len(broker.logs.due_deletions(NOW_MS + HOUR_MS)) == 1


def test_a_tombstone_deletes_a_log_that_an_earlier_incarnation_set_aside(broker: Broker) -> None:
    set_aside(broker)
    broker.start_anew(a_tombstone())
    assert states(broker) == ["delete"]


def test_a_tombstone_deletes_a_log_of_an_unknown_topic(broker: Broker) -> None:
    broker.start_anew()
    broker.show_only(a_tombstone())
    assert states(broker) == ["delete"]
    assert len(broker.logs.strays) == 0


async def test_a_tombstone_deletes_an_offline_log_of_an_unknown_topic_when_its_disk_is_back(
    broker: Broker,
) -> None:
    broker.start_anew()
    broker.lose_disk()
    broker.show_only(a_tombstone())
    broker.find_disk()
    await check_disks(broker)
    assert states(broker) == ["delete"]


def test_a_tombstone_deletes_the_earlier_log_of_a_recreated_topic(broker: Broker) -> None:
    broker.start_anew(a_tombstone(), the_topic(led(HERE, 0, HERE), LATER_ID))
    assert states(broker) == ["", "delete"]
    assert broker.partition.log.log_end_offset == 0


def test_the_earlier_log_of_a_recreated_topic_is_set_aside_without_a_tombstone(broker: Broker) -> None:
    broker.start_anew(the_topic(led(HERE, 0, HERE), LATER_ID))
    assert states(broker) == ["", "stray"]
    broker.show_only(the_topic(led(HERE, 0, HERE), LATER_ID), a_tombstone())
    assert states(broker) == ["", "delete"]


def lose_topic_id(broker: Broker) -> None:
    broker.logs.shutdown(lambda _: None)
    (broker.folder / str(FLIGHTS) / "partition.metadata").unlink()


def test_a_log_without_a_topic_id_belongs_to_the_only_topic_that_had_its_name(broker: Broker) -> None:
    lose_topic_id(broker)
    broker.start_anew(the_topic(led(HERE, 6, HERE)))
    assert broker.partition.log.log_end_offset == 3
    assert states(broker) == [""]


def test_a_log_without_a_topic_id_is_set_aside_if_an_earlier_topic_had_its_name(broker: Broker) -> None:
    lose_topic_id(broker)
    broker.start_anew(a_tombstone(), the_topic(led(HERE, 0, HERE), LATER_ID))
    assert broker.partition.log.log_end_offset == 0
    assert states(broker) == ["", "stray"]


def test_an_empty_log_without_a_topic_id_is_deleted_if_its_topic_is_unknown(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 5, HERE))
    lose_topic_id(broker)
    (broker.folder / str(FLIGHTS) / "00000000000000000000.log").touch()
    broker.start_anew()
    assert states(broker) == ["delete"]


@pytest.mark.parametrize(("epoch", "expected"), [(5, "delete"), (4, "")])
def test_a_replica_reassigned_while_down_is_deleted_unless_its_log_is_ahead_of_the_metadata(
    broker: Broker, epoch: int, expected: str
) -> None:
    elsewhere = msgspec.structs.replace(led(OTHER, epoch, OTHER), replicas=(OTHER,))
    broker.start_anew(the_topic(elsewhere))
    assert states(broker) == [expected]


def test_a_reassigned_replica_is_kept_if_its_partition_was_restored_without_it(broker: Broker) -> None:
    """Its log may be longer than those of the other replicas."""
    elsewhere = msgspec.structs.replace(led(OTHER, 6, OTHER), replicas=(OTHER,), restored_epoch=6)
    broker.start_anew(the_topic(elsewhere))
    assert states(broker) == [""]


def test_a_log_is_kept_if_an_older_topic_document_lacks_its_partition(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 5, HERE))
    broker.show(led(HERE, 5, HERE), led(HERE, 5, HERE))
    assert broker.replicas.lookup.hosted(TopicPartition(FLIGHTS.topic, 1)) is not None
    broker.start_anew(the_topic(led(HERE, 5, HERE)))
    assert states(broker) == ["", ""]
    assert [each.topic_partition.partition for each in broker.logs.strays] == [1]


def test_a_replica_that_is_reassigned_while_the_broker_runs_is_deleted(broker: Broker) -> None:
    broker.show(msgspec.structs.replace(led(OTHER, 6, OTHER), replicas=(OTHER,)))
    assert states(broker) == ["delete"]


def test_a_log_of_an_unknown_topic_stays_listed_while_its_disk_fails_and_returns(broker: Broker) -> None:
    broker.start_anew()
    broker.lose_disk()
    assert broker.logs.strays.totals()[str(broker.folder)].logs == 1
    broker.find_disk()
    assert [stray.log_dir for stray in broker.logs.strays] == [str(broker.folder)]
    assert broker.logs.strays.totals()[str(broker.folder)].logs == 1
