"""The logs that have all records that were acknowledged before a power cut."""

from pathlib import Path

import pytest
from log_manager_samples import CONFIG, TOPIC_ID, flights, started
from msgspec.structs import replace
from storage_samples import append, batch

from barnabas_broker.storage.disk.checkpoints import decode_offsets
from barnabas_broker.storage.log_dirs.log_dir import Kept, KeptRecords
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log_syncs import sync_now

ALWAYS_SYNCED = replace(CONFIG, flush_messages=1)


@pytest.mark.parametrize(
    ("may_lack_unsynced", "is_promised", "is_cut", "end_offset", "kept"),
    [
        (False, False, False, 9, Kept.ALL),
        (False, False, True, 9, Kept.SOME),
        (True, False, False, 9, Kept.SOME),
        (True, False, False, 0, Kept.SYNCED),
        (True, True, False, 9, Kept.SYNCED),
        (True, True, False, 0, Kept.SYNCED),
        (True, True, True, 9, Kept.SOME),
        (True, False, True, 0, Kept.SOME),
    ],
)
def test_a_log_has_kept_all_records_only_if_none_was_acknowledged_unsynced(
    may_lack_unsynced: bool, is_promised: bool, is_cut: bool, end_offset: int, kept: Kept
) -> None:
    found = KeptRecords()
    found.may_lack_unsynced = may_lack_unsynced
    found.promised = {flights(0)} if is_promised else set()
    found.cut = {flights(0)} if is_cut else set()
    assert found.of(flights(0), end_offset) is kept


def promised(path: Path) -> set[int]:
    return {each.partition for each in decode_offsets((path / "synced-logs-checkpoint").read_bytes())}


def synced_as_asked(path: Path) -> LogManager:
    logs = started(path)
    logs.on_sync_due = sync_now
    return logs


def test_a_new_log_is_in_the_checkpoint_of_synced_logs_before_it_takes_records(tmp_path: Path) -> None:
    logs = synced_as_asked(tmp_path)
    logs.truncated.on_added = lambda _: None
    log = logs.create(flights(0), TOPIC_ID, ALWAYS_SYNCED)
    before = log.known_producers.are_held_back
    logs.truncated.complete(logs.log_dirs[0])
    assert (before, log.known_producers.are_held_back) == (True, False)
    assert promised(tmp_path) == {0}


def test_a_log_is_still_synced_until_it_has_left_the_checkpoint_of_synced_logs(tmp_path: Path) -> None:
    logs = synced_as_asked(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, ALWAYS_SYNCED)
    append(log, batch(2))
    log.configure(CONFIG)
    append(log, batch(2))
    assert log.syncs.recovery_point == 4
    logs.checkpoint(lambda _: None)
    assert promised(tmp_path) == set()
    append(log, batch(2))
    append(log, batch(2))
    assert log.syncs.recovery_point < 8


def test_a_log_enters_the_checkpoint_of_synced_logs_once_all_its_records_are_synced(tmp_path: Path) -> None:
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    append(log, batch(2))
    log.flush()
    append(log, batch(2))
    log.configure(ALWAYS_SYNCED)
    logs.checkpoint(lambda _: None)
    assert log.syncs.ack_end_offset(log.log_end_offset) == 4
    assert not (tmp_path / "synced-logs-checkpoint").exists()
    log.flush()
    logs.checkpoint(lambda _: None)
    assert promised(tmp_path) == {0}
