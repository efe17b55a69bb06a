"""The metrics of a broker's disks and of its own process."""

import os
import resource
import time

import pytest
from scrape import shown

from barnabas_broker.server.metrics.broker_families import disk_families, process_families, read_usage
from barnabas_broker.storage.disk.files import DiskUsage, PosixFileSystem
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import LogDir

MIB = 1 << 20


class Disks(PosixFileSystem):
    """A file system whose log dirs have this usage; the disk of one with None fails."""

    def __init__(self, **usages: DiskUsage | None) -> None:
        self._usages = usages
        self.log_dirs = [LogDir(self, name) for name in usages]

    def usage(self, path: str) -> DiskUsage:
        usage = self._usages[path]
        if usage is None:
            raise LogDirFailed(path, "Input/output error")
        return usage


def test_each_log_dir_shows_the_total_and_the_usable_bytes_of_its_disk() -> None:
    told = shown(disk_families(Disks(a=DiskUsage(100, 40), b=DiskUsage(200, 0)).log_dirs))
    assert told['barnabas_log_dir_total_bytes{log_dir="a"}'] == "100"
    assert told['barnabas_log_dir_usable_bytes{log_dir="a"}'] == "40"
    assert told['barnabas_log_dir_usable_bytes{log_dir="b"}'] == "0"


def test_a_log_dir_that_is_offline_or_whose_disk_fails_is_left_out() -> None:
    offline, failing = Disks(a=DiskUsage(100, 40), b=None).log_dirs
    offline.failure = LogDirFailed("a", "Input/output error")
    assert shown(disk_families([offline, failing])) == {}


def test_the_metrics_of_the_process_agree_with_the_kernel() -> None:
    held = bytearray(64 * MIB)
    usage = read_usage()
    assert usage is not None
    told = {name: float(value) for name, value in shown(process_families(usage)).items()}
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert len(held) < told["process_resident_memory_bytes"] <= highest + MIB
    assert 0 < told["process_cpu_seconds_total"] <= time.process_time()
    assert 0 <= time.time() - told["process_start_time_seconds"] < 24 * 3600
    assert 0 < told["process_open_fds"] <= told["process_max_fds"]


def test_open_files_are_counted() -> None:
    before, (reader, writer) = read_usage(), os.pipe()
    after = read_usage()
    os.close(reader)
    os.close(writer)
    assert before is not None
    assert after is not None
    assert after.open_fds == before.open_fds + 2


def test_the_metrics_of_the_process_are_left_out_without_proc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.setattr("barnabas_broker.server.metrics.broker_families.PROC", tmp_path)
    assert process_families(read_usage()) == []
