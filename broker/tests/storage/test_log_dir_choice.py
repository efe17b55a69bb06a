"""F26, F64: the log dir of a new log, as it was requested or by the rule."""

from pathlib import Path

import pytest

from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs import replica_moves
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.replica_moves import LogDirChoice
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock


def flights(partition: int) -> TopicPartition:
    return TopicPartition("flights", partition)


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[LogDir]:
    made = [tmp_path / name for name in "abc"]
    for path in made:
        path.mkdir()
    return [LogDir(PosixFileSystem(), str(path)) for path in made]


@pytest.fixture
def choice(log_dirs: list[LogDir]) -> LogDirChoice:
    return LogDirChoice(log_dirs, ManualClock(), "fewest-partitions", 0)


def test_the_last_requested_log_dir_is_used_once(choice: LogDirChoice, log_dirs: list[LogDir]) -> None:
    choice.prefer(flights(0), log_dirs[1].path)
    choice.prefer(flights(0), log_dirs[2].path)
    assert [choice.choose(flights(0)), choice.choose(flights(0))] == [log_dirs[2], log_dirs[0]]


def test_an_impossible_request_is_refused_and_the_earlier_one_stays_valid(
    choice: LogDirChoice, log_dirs: list[LogDir]
) -> None:
    log_dirs[1].fail(LogDirFailed(log_dirs[1].path, "the disk failed"))
    choice.prefer(flights(0), log_dirs[2].path)
    for path, code in (
        (log_dirs[1].path, ErrorCode.KAFKA_STORAGE_ERROR),
        ("/nowhere", ErrorCode.LOG_DIR_NOT_FOUND),
    ):
        with pytest.raises(ApiError) as refused:
            choice.prefer(flights(0), path)
        assert refused.value.code is code
    assert choice.choose(flights(0)) is log_dirs[2]


def test_the_rule_chooses_the_log_dir_if_the_requested_one_is_offline(
    choice: LogDirChoice, log_dirs: list[LogDir]
) -> None:
    choice.prefer(flights(0), log_dirs[0].path)
    log_dirs[0].fail(LogDirFailed(log_dirs[0].path, "the disk failed"))
    assert choice.choose(flights(0)) is log_dirs[1]


def test_the_oldest_of_too_many_requested_log_dirs_are_forgotten(
    choice: LogDirChoice, log_dirs: list[LogDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_moves, "WISHES_MAX", 2)
    for partition in (0, 1, 0, 2):
        choice.prefer(flights(partition), log_dirs[2].path)
    assert [choice.choose(flights(partition)) for partition in range(3)] == [log_dirs[2], log_dirs[0], log_dirs[2]]
