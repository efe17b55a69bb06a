"""The partitions of a log dir go offline, and come back, over several turns of the loop."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from one_replica import HERE, OTHER, Broker, led

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.metadata.model import NO_LEADER
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import LogReports
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import LogDir

COUNT = 40
AT_ONCE = 5
"""The steps of a millisecond that begin within a turn, and one for the turn's end."""


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker that leads all partitions; half of them are in the log dir that fails."""
    broker = Broker(tmp_path, led(HERE, 1, HERE, OTHER))
    broker.show(*[led(HERE, 1, HERE, OTHER)] * COUNT)
    broker.timers.pass_time()
    return broker


def slow(broker: Broker, monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[object]:
    """Let each call of `name` take a millisecond, and return the list of these calls."""
    real, calls = getattr(of, name), list[object]()

    def work(self: object, *arguments: object) -> object:
        calls.append((self, *arguments))
        broker.clock.pass_time(0.001)
        return real(self, *arguments)

    monkeypatch.setattr(of, name, work)
    return calls


def longest_turn(broker: Broker, calls: Sequence[object], begin: Callable[[], object]) -> int:
    counts = [0]
    begin()
    counts.append(len(calls))
    while broker.timers.turn():
        counts.append(len(calls))
    return max(after - before for before, after in pairwise(counts))


def failed_dir(broker: Broker) -> LogDir:
    return next(each for each in broker.logs.log_dirs if each.path == str(broker.folder))


def offline(broker: Broker) -> int:
    return len([each for each in broker.replicas.lookup.partitions() if each.failure is not None])


async def check_disks(broker: Broker) -> None:
    await LogTasks(broker.logs, broker.replicas, broker.clock, lambda _: None).check_disks()


def test_the_partitions_of_a_failed_log_dir_go_offline_over_several_turns(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = slow(broker, monkeypatch, Partition, "go_offline")
    assert longest_turn(broker, gone, broker.lose_disk) <= AT_ONCE
    assert len(gone) == offline(broker) == COUNT // 2
    assert len({where for said in broker.offline_reports for where in said}) == COUNT // 2


async def test_a_log_dir_does_not_come_back_before_its_partitions_have_gone_offline(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions that are still online use the logs that would be loaded again."""
    slow(broker, monkeypatch, Partition, "go_offline")
    broker.lose_disk()
    assert 0 < offline(broker) < COUNT // 2
    await check_disks(broker)
    is_online = [failed_dir(broker).is_online]
    broker.timers.pass_time(1)
    assert offline(broker) == COUNT // 2
    await check_disks(broker)
    is_online.append(failed_dir(broker).is_online)
    assert is_online == [False, True]


def test_records_appended_before_a_partition_goes_offline_are_kept(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = [each for each in broker.replicas.lookup.partitions() if each.log.log_dir == str(broker.folder)][-1]
    slow(broker, monkeypatch, Partition, "go_offline")
    broker.lose_disk()
    failures = [last.failure]
    broker.append(2, last)
    broker.timers.pass_time(1)
    failures.append(last.failure)
    broker.find_disk()
    broker.show(*[led(OTHER, 2, OTHER)] * COUNT)
    failures.append(last.failure)
    assert [failure is not None for failure in failures] == [False, True, False]
    assert last.log.log_end_offset == 2


def test_partitions_whose_disk_is_back_come_online_over_several_turns(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.lose_disk()
    broker.show(*[led(NO_LEADER, 2, OTHER)] * COUNT)
    broker.logs.probe(broker.logs.log_dirs)
    back = slow(broker, monkeypatch, Partition, "come_back")
    assert longest_turn(broker, back, broker.replicas.bring_back) <= AT_ONCE
    assert (len(back), offline(broker)) == (COUNT // 2, 0)


def test_partitions_that_no_disk_could_take_are_created_over_several_turns_once_one_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path, led(HERE, 1, HERE, OTHER))
    for log_dir in broker.logs.log_dirs:
        broker.replicas.failures.log_dir_failed(LogDirFailed(log_dir.path, "the disk failed"))
    broker.show(*[led(HERE, 1, HERE, OTHER)] * COUNT)
    broker.timers.pass_time(1)
    broker.logs.probe(broker.logs.log_dirs)
    made = slow(broker, monkeypatch, Partition, "__init__")
    assert longest_turn(broker, made, broker.replicas.bring_back) <= AT_ONCE
    assert len(made) == COUNT - 1


def test_logs_ahead_of_the_metadata_are_reported_again_over_several_turns(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in broker.replicas.lookup.partitions():
        partition.log.epochs.assign(9, 0)
    broker.show(*[led(HERE, 2, HERE, OTHER)] * COUNT)
    told = slow(broker, monkeypatch, LogReports, "is_ahead")
    broker.ahead.clear()
    assert longest_turn(broker, told, broker.replicas.bring_back) <= AT_ONCE
    assert len(told) == len(broker.ahead) == COUNT


def test_no_partition_comes_back_online_after_a_shutdown(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.lose_disk()
    broker.show(*[led(NO_LEADER, 2, OTHER)] * COUNT)
    broker.logs.probe(broker.logs.log_dirs)
    back = slow(broker, monkeypatch, Partition, "come_back")
    broker.replicas.bring_back()
    before = len(back)
    broker.replicas.stop()
    broker.timers.pass_time(1)
    assert len(back) == before < COUNT // 2
