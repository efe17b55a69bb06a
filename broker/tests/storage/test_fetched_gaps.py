"""A follower of a compacted log is killed: what its leader had removed for newer records is not forgotten."""

from pathlib import Path
from threading import Thread

import pytest
from log_manager_samples import CONFIG, TOPIC_ID, HeldWrites, flights, manager, started
from storage_samples import NOW_MS, batch, read_all

from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.follower_append import append_as_follower
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import truncate_to
from barnabas_broker.wire.record_batch import assign_offset
from barnabas_core.errors import ApiError, ErrorCode

CHECKPOINT = "fetched-gaps-offset-checkpoint"


def stored(*offsets: int) -> bytes:
    """Batches of one record as they lie in the leader's log."""
    found = b""
    for offset in offsets:
        data = batch(1)
        assign_offset(data, 0, offset, 0)
        found += bytes(data)
    return found


def follow(log: Log, *offsets: int, high_watermark: int) -> None:
    append_as_follower(log, memoryview(stored(*offsets)), 0, high_watermark, NOW_MS)


def killed(logs: LogManager, *paths: Path) -> LogManager:
    """What the next start finds."""
    for path, log_dir in zip(paths, logs.log_dirs, strict=True):
        log_dir.fail(LogDirFailed(str(path), "the process dies"))
    return started(*paths)


def offsets_in(log: Log) -> list[int]:
    return [header.base_offset for header in read_all(log)]


def test_a_cut_after_the_crash_within_what_was_fetched_with_gaps_makes_the_log_begin_anew(tmp_path: Path) -> None:
    """Offset 0 was removed for a record below 6, which is cut: the new leader may have offset 0, and nothing for it."""
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, 3, high_watermark=6)
    logs = killed(logs, tmp_path)
    again = logs.logs[flights(0)]
    assert offsets_in(again) == [1, 2, 3]
    truncate_to(again, 3)
    assert (again.log_start_offset, again.log_end_offset, again.size_bytes) == (0, 0, 0)


def test_so_does_one_within_what_was_fetched_after_the_crash(tmp_path: Path) -> None:
    logs = started(tmp_path)
    follow(logs.create(flights(0), TOPIC_ID, CONFIG), 1, 2, 3, high_watermark=6)
    logs = killed(logs, tmp_path)
    again = logs.logs[flights(0)]
    follow(again, 4, 5, 6, 7, high_watermark=6)
    truncate_to(again, 5)
    assert again.log_end_offset == 0


def test_one_above_what_was_committed_does_not_for_the_replica_may_be_in_sync(tmp_path: Path) -> None:
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, 3, 4, 5, high_watermark=6)
    follow(log, 6, 7, 8, high_watermark=6)
    logs = killed(logs, tmp_path)
    again = logs.logs[flights(0)]
    truncate_to(again, 6)
    assert offsets_in(again) == [1, 2, 3, 4, 5]


def test_nothing_is_appended_before_the_bound_is_on_the_disk(tmp_path: Path) -> None:
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    waiting: list[object] = []
    logs.truncated.on_added = waiting.append
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            follow(log, 1, 2, high_watermark=6)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (log.log_end_offset, (tmp_path / CHECKPOINT).exists()) == (0, False)
    logs.truncated.complete(logs.log_dirs[0])
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\nflights 0 6\n"
    follow(log, 1, 2, high_watermark=6)
    assert offsets_in(log) == [1, 2]


def test_the_log_grows_beyond_the_bound_once_a_higher_one_is_on_the_disk(tmp_path: Path) -> None:
    """What was compacted meanwhile may have gone for records above the first bound."""
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, high_watermark=4)
    follow(log, 3, 5, 6, high_watermark=8)
    assert (log.log_end_offset, log.fetched_gaps.until) == (4, 8)
    follow(log, 5, 6, 7, 8, high_watermark=9)
    assert offsets_in(log) == [1, 2, 3, 5, 6, 7, 8]
    logs = killed(logs, tmp_path)
    again = logs.logs[flights(0)]
    truncate_to(again, 8)
    assert again.log_end_offset == 0


def test_a_follower_catches_up_while_its_leader_takes_records_all_the_time(tmp_path: Path) -> None:
    """Each of its fetches hears of a higher high watermark; few of them wait for the disk."""
    logs = started(tmp_path)
    log, end_offset, refusals = logs.create(flights(0), TOPIC_ID, CONFIG), 20, 0
    logs.truncated.on_added = lambda _: None
    for _ in range(10):
        left = [offset for offset in range(end_offset) if offset % 2 or offset > 12]
        try:
            follow(log, *(offset for offset in left if offset >= log.log_end_offset), high_watermark=end_offset - 1)
        except ApiError:
            refusals += 1
            logs.truncated.complete(logs.log_dirs[0])
        end_offset += 3
    assert log.log_end_offset == end_offset - 3
    assert refusals == 2


def test_who_was_killed_while_it_caught_up_waits_for_the_disk_once_more(tmp_path: Path) -> None:
    """A gap may be below its end that only the process before has seen, of a compaction above the bound."""
    logs = started(tmp_path)
    follow(logs.create(flights(0), TOPIC_ID, CONFIG), 1, 2, 3, high_watermark=4)
    logs = killed(logs, tmp_path)
    again = logs.logs[flights(0)]
    follow(again, 4, 5, 6, 7, high_watermark=6)
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\nflights 0 6\n"
    truncate_to(again, 5)
    assert again.log_end_offset == 0


def test_who_leads_has_no_gaps_for_records_that_it_never_fetched(tmp_path: Path) -> None:
    """What it takes then is cut like any other: it may be in sync, and nothing of it committed."""
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, high_watermark=6)
    log.begin_to_lead()
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\nflights 0 3\n"
    follow(log, 3, 4, 5, high_watermark=3)
    logs = killed(logs, tmp_path)
    again = logs.logs[flights(0)]
    truncate_to(again, 4)
    assert offsets_in(again) == [1, 2, 3]


def test_a_log_that_begins_anew_has_no_gaps(tmp_path: Path) -> None:
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, 3, high_watermark=6)
    truncate_to(log, 2)
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n0\n"
    follow(log, 0, 1, 2, 3, 4, high_watermark=1)
    truncate_to(log, 2)
    assert offsets_in(log) == [0, 1]


def test_nor_has_one_whose_broker_was_killed_before_its_checkpoint(tmp_path: Path) -> None:
    """It is in sync below the old bound, and would drop what others count on it for."""
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, 3, high_watermark=6)
    logs.truncated.on_added = lambda _: None
    truncate_to(log, 2)
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\nflights 0 6\n"
    logs = killed(logs, tmp_path)
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n0\n"
    again = logs.logs[flights(0)]
    follow(again, 0, 1, 2, 3, 4, high_watermark=3)
    truncate_to(again, 4)
    assert offsets_in(again) == [0, 1, 2, 3]


def test_a_log_of_the_same_name_that_is_made_later_has_none(tmp_path: Path) -> None:
    logs = started(tmp_path)
    follow(logs.create(flights(0), TOPIC_ID, CONFIG), 1, 2, 3, high_watermark=6)
    logs.delete(flights(0))
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 0, 1, 2, 3, 4, high_watermark=1)
    logs = killed(logs, tmp_path)
    again = logs.logs[flights(0)]
    truncate_to(again, 2)
    assert offsets_in(again) == [0, 1]


def test_a_log_that_moves_takes_them_along(tmp_path: Path) -> None:
    paths = tmp_path / "a", tmp_path / "b"
    logs = started(*paths)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, 3, high_watermark=6)
    target = next(path for path in paths if str(path) != log.log_dir)
    move = logs.moves.start(flights(0), str(target))
    assert move is not None
    move.copy(log.size_bytes)
    logs.moves.sync(move)
    logs.moves.finish(move)
    assert (target / CHECKPOINT).read_bytes() == b"0\n1\nflights 0 6\n"
    logs = killed(logs, *paths)
    again = logs.logs[flights(0)]
    truncate_to(again, 3)
    assert again.log_end_offset == 0


def test_a_log_without_gaps_costs_no_checkpoint(tmp_path: Path) -> None:
    logs = started(tmp_path)
    follow(logs.create(flights(0), TOPIC_ID, CONFIG), 0, 1, 2, high_watermark=6)
    logs.checkpoint(lambda _: 3)
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_log_that_was_set_aside_and_is_used_again_has_them_on_the_disk_again(tmp_path: Path) -> None:
    """The checkpoint was written without it meanwhile."""
    logs = started(tmp_path)
    follow(logs.create(flights(0), TOPIC_ID, CONFIG), 1, 2, 3, high_watermark=6)
    logs.set_aside(flights(0), "its topic is not there")
    follow(logs.create(flights(1), TOPIC_ID, CONFIG), 1, 2, 3, high_watermark=4)
    logs.checkpoint(lambda _: 0)
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\nflights 1 4\n"
    assert logs.claim(flights(0), TOPIC_ID) is not None
    logs = killed(logs, tmp_path)
    again = logs.logs[flights(0)]
    truncate_to(again, 3)
    assert (again.log_end_offset, again.size_bytes) == (0, 0)


def test_who_begins_to_lead_while_it_waits_takes_nothing_before_its_lower_bound_is_on_the_disk(tmp_path: Path) -> None:
    """What it takes then is not committed. Within a bound on the disk it would be dropped with all before by a cut."""
    files = HeldWrites()
    logs = manager(tmp_path, files=files)
    logs.load()
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, high_watermark=3)
    logs.truncated.on_added = lambda _: None
    with pytest.raises(ApiError):
        follow(log, 4, high_watermark=6)
    files.held_name = CHECKPOINT
    writing = Thread(target=logs.truncated.complete, args=(logs.log_dirs[0],))
    writing.start()
    files.entered.acquire()
    log.begin_to_lead()
    files.let_go.release()
    writing.join()
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\nflights 0 6\n"
    assert not log.takes_appends
    files.let_go.release()
    logs.truncated.complete(logs.log_dirs[0])
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\nflights 0 3\n"
    assert log.takes_appends


def test_a_crash_just_after_a_log_has_moved_does_not_forget_them(tmp_path: Path) -> None:
    """The log dir that it goes to has the bound before it has the log."""
    paths = tmp_path / "a", tmp_path / "b"
    logs = started(*paths)
    log = logs.create(flights(0), TOPIC_ID, CONFIG, str(paths[0]))
    follow(log, 1, 2, 3, high_watermark=6)
    logs.truncated.on_added = lambda _: None
    move = logs.moves.start(flights(0), str(paths[1]))
    assert move is not None
    move.copy(log.size_bytes)
    logs.moves.sync(move)
    assert logs.moves.finish(move).takes_appends
    logs = killed(logs, *paths)
    again = logs.logs[flights(0)]
    truncate_to(again, 3)
    assert (again.log_dir, again.log_end_offset, again.size_bytes) == (str(paths[1]), 0, 0)


def test_a_log_does_not_move_while_the_other_disk_has_a_lower_bound(tmp_path: Path) -> None:
    paths = tmp_path / "a", tmp_path / "b"
    logs = started(*paths)
    log = logs.create(flights(0), TOPIC_ID, CONFIG, str(paths[0]))
    move = logs.moves.start(flights(0), str(paths[1]))
    assert move is not None
    follow(log, 1, 2, 3, high_watermark=4)
    logs.moves.sync(move)
    assert logs.moves.may_finish(move)
    follow(log, 5, 6, high_watermark=8)
    assert not logs.moves.may_finish(move)
    logs.moves.sync(move)
    assert logs.moves.may_finish(move)


def test_a_move_that_is_called_off_leaves_no_bound_to_a_later_log(tmp_path: Path) -> None:
    paths = tmp_path / "a", tmp_path / "b"
    logs = started(*paths)
    log = logs.create(flights(0), TOPIC_ID, CONFIG, str(paths[0]))
    follow(log, 1, 2, 3, high_watermark=6)
    move = logs.moves.start(flights(0), str(paths[1]))
    assert move is not None
    logs.moves.sync(move)
    logs.moves.stop(flights(0))
    logs.delete(flights(0))
    follow(logs.create(flights(0), TOPIC_ID, CONFIG, str(paths[1])), 0, 1, 2, 3, 4, high_watermark=1)
    logs = killed(logs, *paths)
    again = logs.logs[flights(0)]
    truncate_to(again, 2)
    assert offsets_in(again) == [0, 1]


def test_they_are_on_the_disk_until_the_cut_is_which_a_power_cut_could_undo(tmp_path: Path) -> None:
    """A write that was begun for another log comes before the sync of this one."""
    files = HeldWrites()
    logs = manager(tmp_path, files=files)
    logs.load()
    for number in range(2):
        follow(logs.create(flights(number), TOPIC_ID, CONFIG), 1, 2, 3, high_watermark=6)
    logs.truncated.on_added = lambda _: None
    truncate_to(logs.logs[flights(0)], 3)
    files.held_name = "recovery-point-offset-checkpoint"
    writing = Thread(target=logs.truncated.complete, args=(logs.log_dirs[0],))
    writing.start()
    files.entered.acquire()
    truncate_to(logs.logs[flights(1)], 3)
    files.let_go.release()
    writing.join()
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\nflights 1 6\n"
    files.let_go.release()
    logs.truncated.complete(logs.log_dirs[0])
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n0\n"


def test_the_bound_from_before_a_cut_does_not_come_back_with_a_later_cut(tmp_path: Path) -> None:
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    follow(log, 1, 2, 3, high_watermark=6)
    truncate_to(log, 3)
    follow(log, 0, 1, 2, 3, 4, high_watermark=3)
    log.flush()
    logs.truncated.on_added = lambda _: None  # The later cut is not on the disk yet.
    truncate_to(log, 4)
    logs.log_dirs[0].checkpoint_anew()  # For another log, that was cut before.
    log = killed(logs, tmp_path).logs[flights(0)]
    truncate_to(log, 3)
    assert offsets_in(log) == [0, 1, 2]
