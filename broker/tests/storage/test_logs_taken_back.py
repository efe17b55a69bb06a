"""Logs that were set aside and are used again: nothing of another log of their name, nothing forgotten."""

import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from log_manager_samples import BROKER, CONFIG, TOPIC_ID, flights
from storage_samples import NOW_MS, acknowledged_later, append, batch

from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.disk.open_files import OpenFiles
from barnabas_broker.storage.disk.trash import Trash
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.log_dirs.topic_lookup import TopicLookup
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_core.errors import ApiError
from harness.manual_clock import ManualClock

LATER_ID = UUID(int=99)


class OneDir:
    """A broker with one log dir and one partition, which is of the topic `topic_id`, or of none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.topic_id: UUID | None = None
        self._chance = random.Random(0)
        self.start()

    def start(self) -> None:
        environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), self._chance)
        topics = TopicLookup(lambda topic_id, number: flights(number) if topic_id == self.topic_id else None)
        settings = LogManagerSettings([str(self.path)])
        self.logs = LogManager(environment, ManualClock(), settings, BROKER, lambda _: CONFIG, topics)
        self.logs.on_sync_due = acknowledged_later
        self.logs.load()

    def crash(self) -> None:
        self.logs.log_dirs[0].fail(LogDirFailed(str(self.path), "the process dies"))
        self.start()

    def create(self, topic_id: UUID, records: int) -> Log:
        self.topic_id = topic_id
        log = self.logs.create(flights(0), topic_id, CONFIG)
        for _ in range(records):
            append(log, batch())
        return log

    def set_aside(self) -> None:
        self.topic_id = None
        self.logs.set_aside(flights(0), "its document has vanished")

    def create_later_one(self) -> None:
        """Of another topic of the name: the checkpoints have it, all is synced, its first records were deleted."""
        log = self.create(LATER_ID, 3)
        log.flush()
        log.increment_log_start_offset(2)
        self.logs.checkpoint(lambda _: 3)

    def read_wanted(self) -> None:
        [(stray, wanted)] = self.logs.strays.wanted_logs()
        self.logs.stray_read(stray, wanted, self.logs.strays.read(stray, wanted))

    def offsets(self) -> tuple[int, int, int]:
        log = self.logs.logs[flights(0)]
        return log.log_start_offset, log.recovery_point, log.log_end_offset


@pytest.fixture
def one(tmp_path: Path) -> OneDir:
    return OneDir(tmp_path)


def test_a_crash_takes_nothing_of_a_later_log_of_its_name_for_its_own(one: OneDir) -> None:
    """Its records would be hidden below that one's start, and what a crash tears would count as damage."""
    one.create(TOPIC_ID, 1)
    one.set_aside()
    one.create_later_one()
    one.topic_id = TOPIC_ID
    log = one.logs.claim(flights(0), TOPIC_ID)
    assert log is not None
    append(log, batch())
    one.crash()
    assert one.offsets() == (0, 2, 2)


def test_producers_are_known_after_that(one: OneDir) -> None:
    log = one.create(TOPIC_ID, 0)
    append(log, batch(producer_id=1, epoch=0, sequence=0))
    one.logs.shutdown(lambda _: None)
    one.start()
    one.set_aside()
    one.create_later_one()
    taken = one.logs.claim(flights(0), TOPIC_ID)
    assert taken is not None
    assert append(taken, batch(producer_id=1, epoch=0, sequence=0)).duplicate


def test_a_start_reads_one_from_its_beginning_where_the_checkpoints_have_its_name(one: OneDir) -> None:
    one.create(TOPIC_ID, 5)
    one.set_aside()
    one.create_later_one()
    one.logs.delete(flights(0))
    one.topic_id = TOPIC_ID
    one.crash()
    assert one.logs.claim(flights(0), TOPIC_ID) is None
    one.read_wanted()
    assert one.offsets() == (0, 5, 5)
    one.crash()
    assert one.offsets() == (0, 5, 5)


def test_a_sync_that_was_under_way_does_not_move_its_recovery_point(one: OneDir) -> None:
    """Its directory had another name, or none that the sync knew: the files' names may not be on the disk."""
    log = one.create(TOPIC_ID, 1)
    job = log.flush_job()
    assert job is not None
    one.set_aside()
    job.run()
    assert one.logs.claim(flights(0), TOPIC_ID) is log
    log.flushed(job)
    assert log.recovery_point == 0


def test_it_is_synced_as_if_it_had_never_been_away(one: OneDir) -> None:
    log = one.create(TOPIC_ID, 1)
    log.roll(NOW_MS)
    assert one.logs.unflushed_logs() == [log]
    one.set_aside()
    assert one.logs.unflushed_logs() == []
    assert one.logs.claim(flights(0), TOPIC_ID) is log
    assert one.logs.unflushed_logs() == [log]


def test_what_waits_for_its_disk_does_not_wait_for_the_next_record(one: OneDir) -> None:
    """The sync that `flush.messages` asks for ends where its log is away. Consumers would not see the last records."""
    due: list[object] = []
    one.logs.on_sync_due = due.append
    log = one.create(TOPIC_ID, 0)
    log.config = replace(CONFIG, flush_messages=1)
    append(log, batch())
    one.set_aside()
    due.clear()
    assert one.logs.claim(flights(0), TOPIC_ID) is log
    assert (log.ack_end_offset, due) == (0, [log])


def test_a_later_topic_of_its_name_waits_until_it_is_read_and_gets_none_of_its_records(one: OneDir) -> None:
    one.create(TOPIC_ID, 5)
    one.set_aside()
    one.crash()
    one.topic_id = TOPIC_ID
    assert one.logs.claim(flights(0), TOPIC_ID) is None
    [(stray, wanted)] = one.logs.strays.wanted_logs()
    outcome = one.logs.strays.read(stray, wanted)
    assert one.logs.claim(flights(0), LATER_ID) is None
    with pytest.raises(ApiError, match="is being read in the place of flights-0"):
        one.create(LATER_ID, 0)
    one.logs.stray_read(stray, wanted, outcome)
    assert one.logs.claim(flights(0), LATER_ID) is None
    assert one.create(LATER_ID, 1).log_end_offset == 1
    assert [stray.topic_id for stray in one.logs.strays] == [TOPIC_ID]


def test_one_whose_topic_goes_again_before_it_is_read_is_in_nobodys_way(one: OneDir) -> None:
    one.create(TOPIC_ID, 5)
    one.set_aside()
    one.crash()
    one.topic_id = TOPIC_ID
    assert one.logs.claim(flights(0), TOPIC_ID) is None
    one.topic_id = LATER_ID
    assert one.logs.strays.wanted_logs() == []
    assert one.create(LATER_ID, 1).log_end_offset == 1
