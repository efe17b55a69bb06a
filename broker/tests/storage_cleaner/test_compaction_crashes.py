"""After a crash at any step of a round, the next start finds the newest values, and no file is left over."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from compaction_samples import OneCompactedLog, Pair

from barnabas_broker.storage.disk.files import LogFile, PosixFileSystem
from harness.wrapped_file import WrappedFile


class Died(BaseException):
    """The death of the process, which neither the broker nor its helper can catch."""


class MortalFile(WrappedFile):
    """A file of a process that may die."""

    def __init__(self, file: LogFile, files: "MortalFiles") -> None:
        super().__init__(file)
        self._files = files

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        if self._files.steps_left == 0:
            super().append(data[: len(data) // 2], position)
        self._files.step()
        super().append(data, position)

    def rewrite(self, position: int) -> None:
        self._files.step()
        super().rewrite(position)

    def truncate(self, length: int) -> None:
        self._files.step()
        super().truncate(length)

    def sync(self) -> None:
        self._files.step()
        super().sync()


class MortalFiles(PosixFileSystem):
    """A file system on which the process dies after `steps_left` steps and stays dead; its last write is half done."""

    steps_left = 10**9

    def step(self) -> None:
        if self.steps_left <= 0:
            self.steps_left = -1
            raise Died
        self.steps_left -= 1

    def open_file(self, path: str) -> LogFile:
        return MortalFile(super().open_file(path), self)

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        self.step()
        super().write_atomically(path, data, sync=sync)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.step()
        super().set_modified_ms(path, modified_ms)

    def sync_dir(self, path: str) -> None:
        self.step()
        super().sync_dir(path)


SEGMENT_BYTES = 700


def filled(path: Path) -> OneCompactedLog:
    """Return a log whose segments can be merged, with old values, tombstones past their horizon, and new values."""
    one = OneCompactedLog(path).with_config(segment_bytes=SEGMENT_BYTES, delete_retention_ms=0)
    for number in range(4):
        one.append([(b"gone", b"old %d" % number), (b"key %d" % (number % 3), bytes(150))])
        one.roll()
    one.append([(b"gone", None), (b"kept", b"for ever")])
    one.roll()
    assert one.clean()
    one.clock.passed_ms += 1
    for number in range(3):
        one.append([(b"key %d" % (number % 3), bytes(150)), (b"other %d" % number, bytes(100))])
        one.roll()
    one.append([(b"active", b"value")])
    one.log.flush()
    one.logs.checkpoint(lambda _: None)
    return one


def newest_values(one: OneCompactedLog) -> dict[bytes | None, Pair]:
    found = {}
    for offset, (key, value) in sorted(one.records().items()):
        found[key] = (key, value) if value is not None else (key, None)
        assert offset < one.log.log_end_offset
    return {key: pair for key, pair in found.items() if pair[1] is not None}


def opened(path: Path, files: PosixFileSystem) -> OneCompactedLog:
    one = OneCompactedLog.__new__(OneCompactedLog)
    OneCompactedLog.__init__(one, path, files=files)
    return one.with_config(segment_bytes=SEGMENT_BYTES, delete_retention_ms=0)


def lives(path: Path, template: Path) -> Iterator[tuple[int, OneCompactedLog]]:
    """Let rounds die at the first step, the second, and so on until one is finished; yield each log opened again."""
    steps, finished = 0, False
    while not finished:
        place = path / str(steps)
        shutil.copytree(template, place)
        files = MortalFiles()
        one = opened(place, files)
        one.clock.passed_ms += 10_000
        files.steps_left = steps
        try:
            assert one.clean()
            finished = True
        except Died:
            pass
        for log_dir in one.logs.log_dirs:
            log_dir._lock = None
        yield steps, opened(place, PosixFileSystem())
        shutil.rmtree(place)
        steps += 1


@pytest.mark.slow
def test_a_crash_at_any_step_loses_nothing_and_the_next_round_has_the_same_result(tmp_path: Path) -> None:
    template = filled(tmp_path / "template")
    expected = newest_values(template)
    assert b"gone" not in expected
    end_offset = template.log.log_end_offset
    for log_dir in template.logs.log_dirs:
        log_dir._lock = None
    results = set()
    for steps, again in lives(tmp_path / "lives", tmp_path / "template"):
        assert newest_values(again) == expected, f"died at step {steps}"
        assert (again.log.log_start_offset, again.log.log_end_offset) == (0, end_offset)
        assert not [path.name for path in again.directory.iterdir() if path.suffix in {".swap", ".cleaned", ".deleted"}]
        again.clock.passed_ms += 20_000
        while again.clean():
            assert not again.cleaner.backoff.failed
        results.add(tuple(sorted(again.records().items(), key=lambda each: each[0])))
        assert newest_values(again) == expected
    assert steps > 30
    assert len(results) == 1


@pytest.mark.parametrize("half_written", ["log", "index"])
def test_files_that_a_dead_helper_left_are_overwritten(tmp_path: Path, half_written: str) -> None:
    one = filled(tmp_path)
    expected = newest_values(one)
    one.file(0, f".{half_written}.cleaned").write_bytes(b"half a segment" * 10_000)
    assert one.clean()
    assert newest_values(one) == expected
    assert not list(one.directory.glob("*.cleaned"))
