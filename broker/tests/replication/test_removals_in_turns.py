"""A topic of many partitions is removed over several turns of the loop, whatever happens to its name meanwhile."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, OTHER, Broker, led

from barnabas_broker.metadata.documents import AnyDocument, tombstone_key, topic_key
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument, TopicDocument
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.errors import CorruptLog
from barnabas_core.errors import ApiError, ErrorCode

COUNT = 20
A_RENAME_S = 0.001
AT_ONCE = 5
"""Renames that begin within a turn, and one for the turn's end."""
FIRST_ID, LATER_ID = UUID(int=7), UUID(int=8)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker that leads all partitions and has a slow disk."""
    broker, rename = Broker(tmp_path, led(HERE, 1, HERE)), PosixFileSystem.rename
    broker.show(*[led(HERE, 1, HERE)] * COUNT)
    broker.timers.pass_time()

    def slow_rename(self: PosixFileSystem, source: str, target: str) -> None:
        rename(self, source, target)
        broker.clock.pass_time(A_RENAME_S)

    monkeypatch.setattr(PosixFileSystem, "rename", slow_rename)
    return broker


def topic(state: PartitionState, topic_id: UUID = FIRST_ID, count: int = COUNT) -> tuple[str, AnyDocument]:
    return topic_key(FLIGHTS.topic), TopicDocument(FLIGHTS.topic, topic_id, (state,) * count)


def tombstone(topic_id: UUID = FIRST_ID) -> tuple[str, AnyDocument]:
    return tombstone_key(topic_id), TombstoneDocument(FLIGHTS.topic, topic_id, NOW_MS, COUNT)


def deleted(broker: Broker) -> int:
    return len(list(broker.folder.parent.glob("*/*-delete")))


def in_use(broker: Broker) -> int:
    return len([path for path in broker.folder.parent.glob(f"*/{FLIGHTS.topic}-*") if "." not in path.name])


def hosted(broker: Broker) -> Sequence[Partition]:
    return list(broker.replicas.lookup.partitions())


def deletions_of_turns(broker: Broker) -> list[int]:
    """Return how many logs were deleted after each turn, until no work is left."""
    found = [deleted(broker)]
    while broker.timers.turn():
        found.append(deleted(broker))
    return found


def test_the_logs_of_a_deleted_topic_are_removed_over_several_turns(broker: Broker) -> None:
    broker.show_only(tombstone())
    found = deletions_of_turns(broker)
    assert found[-1] == COUNT
    assert max(after - before for before, after in zip([0, *found], found, strict=False)) <= AT_ONCE


def test_a_partition_of_a_deleted_topic_is_unknown_while_its_log_still_exists(broker: Broker) -> None:
    broker.show_only(tombstone())
    assert 0 < deleted(broker) < COUNT
    assert hosted(broker) == []
    with pytest.raises(ApiError) as refused:
        broker.replicas.lookup.find(FLIGHTS.topic, None, COUNT - 1)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_recreated_topic_gets_none_of_the_logs_that_await_removal(broker: Broker) -> None:
    broker.append(3)
    broker.show_only(tombstone())
    broker.show_only(tombstone(), topic(led(HERE, 1, HERE), LATER_ID))
    assert deleted(broker) < COUNT
    broker.timers.pass_time(1)
    assert (len(hosted(broker)), deleted(broker), in_use(broker)) == (COUNT, COUNT, COUNT)
    assert {(each.topic_id, each.log.topic_id, each.log.log_end_offset) for each in hosted(broker)} == {
        (LATER_ID, LATER_ID, 0)
    }
    assert broker.logs.strays.totals() == {}


def test_a_topic_that_is_recreated_and_deleted_again_leaves_no_logs(broker: Broker) -> None:
    broker.show_only(tombstone())
    broker.show_only(tombstone(), topic(led(HERE, 1, HERE), LATER_ID))
    made = len(hosted(broker))
    assert 0 < made < COUNT
    broker.show_only(tombstone(), tombstone(LATER_ID))
    broker.timers.pass_time(1)
    assert (hosted(broker), in_use(broker)) == ([], 0)
    assert deleted(broker) >= COUNT + made
    assert broker.logs.strays.totals() == {}


def test_a_leader_change_after_a_deletion_applies_to_the_recreated_topic(broker: Broker) -> None:
    broker.show_only(tombstone())
    broker.show_only(tombstone(), topic(led(HERE, 1, HERE, OTHER), LATER_ID))
    broker.show_only(tombstone(), topic(led(OTHER, 2, HERE, OTHER), LATER_ID))
    broker.timers.pass_time(1)
    assert {(each.topic_id, each.state.leader, each.leader_epoch) for each in hosted(broker)} == {(LATER_ID, OTHER, 2)}
    assert len(broker.fetching.followed) == COUNT


def test_replicas_reassigned_away_and_back_at_once_start_with_empty_logs(broker: Broker) -> None:
    broker.append(3)
    elsewhere = PartitionState((OTHER,), OTHER, 2, (OTHER,), partition_epoch=2)
    broker.show_only(topic(elsewhere))
    assert deleted(broker) < COUNT
    broker.show_only(topic(led(OTHER, 2, OTHER, partition_epoch=3)))
    broker.timers.pass_time(1)
    assert (len(hosted(broker)), deleted(broker), in_use(broker)) == (COUNT, COUNT, COUNT)
    assert {each.log.log_end_offset for each in hosted(broker)} == {0}
    assert len(broker.fetching.followed) == COUNT


def test_replicas_reassigned_away_before_their_topic_is_deleted_leave_no_logs(broker: Broker) -> None:
    led_before = hosted(broker)
    elsewhere = PartitionState((OTHER,), OTHER, 2, (OTHER,), partition_epoch=2)
    broker.show_only(topic(elsewhere))
    broker.show_only(tombstone())
    broker.timers.pass_time(1)
    assert (deleted(broker), in_use(broker)) == (COUNT, 0)
    assert not any(each.leader is not None for each in led_before)


def test_the_next_start_deletes_logs_of_a_deleted_topic_that_a_shutdown_left(broker: Broker) -> None:
    led_before = hosted(broker)
    broker.show_only(tombstone())
    broker.replicas.stop()
    assert not any(each.leader is not None for each in led_before)
    renamed = deleted(broker)
    broker.timers.pass_time(1)
    assert (deleted(broker), in_use(broker)) == (renamed, COUNT - renamed)
    broker.start_anew(tombstone())
    assert (deleted(broker), in_use(broker), hosted(broker)) == (COUNT, 0, [])


def test_metadata_changes_after_a_shutdown_touch_no_log(broker: Broker) -> None:
    """The logs are closed or being closed; the next start applies the changes."""
    led_before = hosted(broker)
    broker.replicas.stop()
    broker.show_only(topic(led(HERE, 2, HERE), count=COUNT + 1))
    broker.replicas.reconfigure(broker.config)
    broker.timers.pass_time(1)
    assert not any(each.leader is not None for each in led_before)
    assert in_use(broker) == COUNT
    broker.show_only(topic(led(OTHER, 3, OTHER)))
    assert broker.fetching.followed == set()
    broker.show_only(tombstone())
    broker.timers.pass_time(1)
    assert (deleted(broker), in_use(broker)) == (0, COUNT)


def test_a_failed_log_that_awaits_removal_does_not_report_the_recreated_topic_offline(broker: Broker) -> None:
    last = hosted(broker)[-1]
    broker.show_only(tombstone())
    broker.show_only(tombstone(), topic(led(OTHER, 1, HERE, OTHER), LATER_ID))
    assert broker.replicas.lookup.hosted(last.topic_partition) is None
    broker.replicas.failures.storage_failed(last, CorruptLog(str(broker.folder), "what was fetched cannot be read"))
    assert broker.offline_reports == []
    broker.timers.pass_time(1)
    assert len(hosted(broker)) == COUNT


def test_logs_of_an_unknown_topic_are_removed_over_several_turns_after_its_tombstone(broker: Broker) -> None:
    broker.start_anew()
    broker.timers.pass_time(1)
    assert sum(total.logs for total in broker.logs.strays.totals().values()) == COUNT
    before = deleted(broker)
    broker.show_only(tombstone())
    found = deletions_of_turns(broker)
    assert (before, found[-1]) == (0, COUNT)
    assert max(after - before for before, after in zip([0, *found], found, strict=False)) <= AT_ONCE
