"""What becomes of names whose logs may lie in a log dir that was away at the start, and of their next owners."""

from pathlib import Path
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, OTHER, Broker, led

from barnabas_broker.metadata.documents import AnyDocument, tombstone_key, topic_key
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument, TopicDocument

FIRST_ID, LATER_ID = UUID(int=7), UUID(int=8)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """The log dir with its only log did not come up."""
    broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1))
    broker.append(3)
    broker.stop()
    broker.folder.rename(tmp_path / "away")
    broker.folder.write_text("no directory: its disk did not come up", encoding="utf-8")
    return Broker(tmp_path, led(HERE, 4, HERE, replicas=1))


def come_up(broker: Broker) -> None:
    broker.folder.unlink()
    (broker.folder.parent / "away").rename(broker.folder)
    broker.find_disk()
    broker.timers.pass_time(1)


def tombstone() -> tuple[str, AnyDocument]:
    return tombstone_key(FIRST_ID), TombstoneDocument(FLIGHTS.topic, FIRST_ID, NOW_MS)


def made_again() -> tuple[str, AnyDocument]:
    return topic_key(FLIGHTS.topic), TopicDocument(FLIGHTS.topic, LATER_ID, (led(HERE, 0, HERE, replicas=1),))


def test_a_topic_that_is_made_again_does_not_wait_for_the_log_dir_of_the_earlier_one(broker: Broker) -> None:
    broker.show_only(tombstone())
    broker.show_only(tombstone(), made_again())
    broker.timers.pass_time(1)
    broker.append(2)
    come_up(broker)
    log = broker.partition.log
    assert (log.topic_id, log.log_end_offset, log.log_dir) == (LATER_ID, 2, str(broker.folder.parent / "more"))
    assert broker.losses == []
    assert broker.logs.log_dirs[0].logs == {}


def test_a_topic_that_is_made_again_has_lost_nothing_with_the_log_dir_of_the_earlier_one(broker: Broker) -> None:
    """All log dirs are back before its turn to be made comes."""
    broker.show_only(tombstone())
    come_up(broker)
    broker.show_only(tombstone(), made_again())
    broker.timers.pass_time(1)
    assert broker.losses == []
    assert (broker.error_of_read(), broker.partition.log.log_end_offset) == (None, 0)


def test_a_replica_that_went_elsewhere_and_comes_back_does_not_wait_for_that_log_dir(broker: Broker) -> None:
    broker.show(PartitionState((OTHER,), OTHER, 5, (OTHER,), partition_epoch=5))
    broker.replicas.bring_back()
    broker.timers.pass_time(1)
    broker.show(PartitionState((HERE, OTHER), OTHER, 5, (OTHER,), partition_epoch=6))
    broker.timers.pass_time(1)
    assert broker.fetching.followed == {FLIGHTS}
    assert broker.partition.log.log_end_offset == 0
