"""The recovery of a log from its files after a crash, a cut or a flipped bit."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from log_manager_samples import FullAfter
from storage_samples import NOW_MS, OneLog, append, batch, bytes_of, headers_in, read_all

from barnabas_broker.storage.disk.files import LogFile, PosixFileSystem
from barnabas_broker.storage.errors import CorruptLog
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_loader import close_logs
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at, truncate_to
from harness.wrapped_file import WrappedFile

SIZE = len(batch(1))


def filled(one: OneLog, batches: int) -> Log:
    log = one.open()
    for _ in range(batches):
        append(log, batch(1))
    return log


def test_a_torn_batch_is_cut_off_and_the_rest_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = OneLog(tmp_path)
    filled(one, 5).segments.close_files()
    with one.file(0, ".log").open("rb+") as file:
        file.truncate(4 * SIZE + 30)
    log = one.open()
    assert log.log_end_offset == 4
    assert one.file(0, ".log").stat().st_size == 4 * SIZE
    assert append(log, batch(1)).base_offset == 4
    assert "the last 30 bytes were cut off" in caplog.text


def test_zeros_after_the_last_batch_are_cut_off(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    filled(one, 2).segments.close_files()
    with one.file(0, ".log").open("ab") as file:
        file.write(bytes(1000))
    assert one.open().log_end_offset == 2


@pytest.mark.parametrize("byte", [65, 8], ids=["the records", "the length"])
def test_a_batch_with_a_changed_byte_past_the_recovery_point_ends_the_log(tmp_path: Path, byte: int) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=3 * SIZE)
    filled(one, 8).segments.close_files()
    flip(one.file(3, ".log"), SIZE + byte)
    log = one.open()
    assert log.log_end_offset == 4
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert len(read_all(log)) == 4


def test_records_that_a_crash_left_unsynced_are_synced_according_to_flush_messages(tmp_path: Path) -> None:
    """A fetch, or a producer's retry, would otherwise acknowledge them before they are on the disk."""
    one = OneLog(tmp_path)
    filled(one, 3).segments.close_files()
    assert one.with_config(flush_messages=3).open(recovery_point=1).syncs.recovery_point == 1
    log = one.with_config(flush_messages=2).open(recovery_point=1)
    assert (log.syncs.recovery_point, log.syncs.ack_end_offset(log.log_end_offset)) == (3, 3)


def test_the_first_records_of_a_log_are_synced_before_they_are_acknowledged(tmp_path: Path) -> None:
    """A log that a power cut leaves empty has therefore never had an acknowledged record."""
    one = OneLog(tmp_path)
    log = one.open()
    for _ in range(3):
        append(log, batch(1))
    assert (log.syncs.recovery_point, log.syncs.ack_end_offset(log.log_end_offset)) == (1, 3)
    log.segments.close_files()
    assert one.open(recovery_point=None).syncs.recovery_point == 3, "the process died before a checkpoint"
    truncate_fully_and_start_at(log, 500, NOW_MS)
    append(log, batch(2))
    append(log, batch(2))
    assert (log.syncs.recovery_point, log.syncs.ack_end_offset(log.log_end_offset)) == (502, 504)


def test_a_log_is_loaded_after_a_crash_although_a_full_disk_cannot_sync_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OneLog(tmp_path)
    filled(one, 3).segments.close_files()
    disk = FullAfter(monkeypatch, bytes_left=0)
    log = one.with_config(flush_messages=1).open()
    assert len(read_all(log)) == 3
    assert log.syncs.recovery_point == 0
    disk.bytes_left = 10_000
    append(log, batch(1))
    assert log.syncs.recovery_point == 4


def test_only_batches_past_the_recovery_point_are_checked(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=100 * SIZE, index_interval_bytes=0)
    log = filled(one, 80)
    log.flush()
    for _ in range(10):
        append(log, batch(1))
    log.segments.close_files()
    flip(one.file(0, ".log"), 79 * SIZE + 65)
    assert one.open(recovery_point=80).log_end_offset == 90
    assert one.open(recovery_point=79).log_end_offset == 79


@pytest.mark.parametrize("byte", [16, 8])
def test_damage_below_the_recovery_point_does_not_truncate_the_log(tmp_path: Path, byte: int) -> None:
    one = OneLog(tmp_path)
    filled(one, 9).segments.close_files()
    flip(one.file(0, ".log"), 3 * SIZE + byte)
    with pytest.raises(CorruptLog, match=f"flights-0 is damaged at byte {3 * SIZE}"):
        one.open(recovery_point=8)
    assert one.file(0, ".log").stat().st_size == 9 * SIZE


def test_a_damaged_batch_below_the_recovery_point_is_found_by_a_read(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=10 * SIZE)
    log = filled(one, 25)
    log.flush()
    log.segments.close_files()
    flip(one.file(10, ".log"), 5 * SIZE + 16)
    log = one.open(recovery_point=20)
    assert log.log_end_offset == 25
    assert headers_in(bytes_of(log.read(3, 10, 25, at_least_one_batch=True)))[0].base_offset == 3
    with pytest.raises(
        CorruptLog, match=f"flights-0 is damaged at byte {5 * SIZE}: the magic of the batch is -3, not 2"
    ):
        log.read(17, 1000, 25, at_least_one_batch=True)


def test_no_log_is_read_after_a_clean_shutdown(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    log = filled(one, 5)
    close_logs([log])
    checked: list[int] = []
    again = one.open(recovery_point=5, clean=True, on_recovered=checked.append)
    assert (again.log_end_offset, again.syncs.recovery_point, checked) == (5, 5, [])
    assert len(one.environment.open_files) == 0


def test_a_log_that_was_modified_after_the_clean_shutdown_is_checked(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    close_logs([filled(one, 5)])
    path = one.file(0, ".log")
    with path.open("rb+") as file:
        file.truncate(4 * SIZE + 1)
    place = one.place(5, path.stat().st_mtime_ns - 1)
    from barnabas_broker.storage.logs.log_loader import open_log

    assert open_log(one.environment, place, NOW_MS).log_end_offset == 4


def flip(path: Path, position: int) -> None:
    with path.open("rb+") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))


def _missing(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _beyond_the_log(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-4] + struct.pack(">i", 2**30))


def _other_batch(path: Path) -> None:
    """Shift positions into the middle of batches."""
    content = bytearray(path.read_bytes())
    for place in range(4, len(content), 8):
        content[place + 3] ^= 0x05
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [_missing, _cut, _zeros, _beyond_the_log, _other_batch])
@pytest.mark.parametrize("clean", [True, False])
def test_a_wrong_offset_index_is_rebuilt(tmp_path: Path, damage: Callable[[Path], None], clean: bool) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=50 * SIZE, index_interval_bytes=100)
    close_logs([filled(one, 120)])
    expected = {base: one.file(base, ".index").read_bytes() for base in (0, 50)}
    for base in expected:
        damage(one.file(base, ".index"))
    log = one.open(recovery_point=120, clean=clean)
    for offset in (0, 7, 49, 50, 77, 119):
        found = headers_in(bytes_of(log.read(offset, 1, 120, at_least_one_batch=True)))
        assert found[0].base_offset == offset
    close_logs([log])
    assert {base: one.file(base, ".index").read_bytes() for base in expected} == expected


@pytest.mark.parametrize("damage", [_missing, _cut, _zeros])
def test_a_wrong_time_index_is_rebuilt(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=50 * SIZE, index_interval_bytes=100)
    log = one.open()
    for number in range(60):
        append(log, batch(1, timestamps=[NOW_MS + number]))
    close_logs([log])
    expected = one.file(0, ".timeindex").read_bytes()
    damage(one.file(0, ".timeindex"))
    log = one.open(recovery_point=60, clean=True)
    assert log.segments.first.largest_timestamp() == (NOW_MS + 49, 49)
    log.segments.first.seal()
    assert one.file(0, ".timeindex").read_bytes() == expected


def test_missing_indexes_are_rebuilt_by_few_large_reads_while_the_log_is_loaded(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=500 * SIZE, index_interval_bytes=100)
    close_logs([filled(one, 1000)])
    expected = {base: one.file(base, ".index").read_bytes() for base in (0, 500)}
    for base in expected:
        one.file(base, ".index").unlink()
        one.file(base, ".timeindex").unlink()
    one.files = counting = CountingReads()
    one.__post_init__()
    log = one.open(recovery_point=1000, clean=True)
    assert {base: one.file(base, ".index").read_bytes() for base in expected} == expected
    reads = counting.reads
    assert reads < 20
    assert log.read(700, 1, 1000, at_least_one_batch=True) is not None
    assert counting.reads - reads < 20


class CountingFile(WrappedFile):
    """A file whose reads are counted by its file system."""

    def __init__(self, counts: "CountingReads", file: LogFile) -> None:
        super().__init__(file)
        self._counts = counts

    def read_at(self, position: int, length: int) -> bytes:
        self._counts.reads += 1
        return super().read_at(position, length)


class CountingReads(PosixFileSystem):
    """A file system that counts the reads of its files."""

    def __init__(self) -> None:
        self.reads = 0

    def open_file(self, path: str) -> LogFile:
        return CountingFile(self, super().open_file(path))


def test_recovery_rebuilds_the_index_entries_that_a_crash_has_lost(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(index_interval_bytes=100)
    log = filled(one, 40)
    log.segments.close_files()
    assert one.file(0, ".index").stat().st_size == 0
    again = one.open()
    close_logs([again])
    assert one.file(0, ".index").stat().st_size == 8 * log.segments.first.indexes.offsets.count


@pytest.mark.parametrize("left", ["missing", "empty", "damaged", "too late"])
@pytest.mark.parametrize("clean", [True, False])
def test_leader_epochs_are_restored_from_the_batches_if_their_checkpoint_is_lost(
    tmp_path: Path, left: str, clean: bool
) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=2 * SIZE)
    log = one.open()
    for epoch in (0, 0, 3, 3, 5):
        append(log, batch(2), leader_epoch=epoch)
    close_logs([log])
    expected = log.epochs.entries
    path = one.directory / "leader-epoch-checkpoint"
    contents = {"empty": "", "damaged": "0\n9\n0 0\n", "too late": "0\n2\n3 6\n5 8\n"}
    path.unlink() if left == "missing" else path.write_text(contents[left])
    again = one.open(recovery_point=10, clean=clean)
    assert again.epochs.entries == expected
    assert again.epochs.end_offset_for(3, again.log_end_offset) == (3, 8)


def test_leader_epochs_past_the_recovery_point_are_taken_from_the_batches(tmp_path: Path) -> None:
    """The checkpoint may be from before a truncation."""
    one = OneLog(tmp_path)
    log = one.open()
    for epoch in (1, 1, 7):
        append(log, batch(2), leader_epoch=epoch)
    log.flush()
    truncate_to(log, 2)
    append(log, batch(2), leader_epoch=2)
    append(log, batch(2), leader_epoch=3)
    log.segments.close_files()
    assert (one.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n7 4\n"
    again = one.open(recovery_point=2)
    assert again.epochs.entries == log.epochs.entries == [(1, 0), (2, 2), (3, 4)]


def test_a_leader_epoch_checkpoint_is_never_replaced_by_an_unsynced_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    write = PosixFileSystem.write_atomically

    def noted(self: PosixFileSystem, path: str, data: bytes, *, sync: bool) -> None:
        if path.endswith("leader-epoch-checkpoint"):
            synced.append(sync)
        write(self, path, data, sync=sync)

    monkeypatch.setattr(PosixFileSystem, "write_atomically", noted)
    log = OneLog(tmp_path).open()
    append(log, batch(2), leader_epoch=0)
    synced.clear()
    for epoch in range(1, 5):
        append(log, batch(2), leader_epoch=epoch)
    assert synced == []
    log.flush()
    log.flush()
    append(log, batch(2), leader_epoch=5)
    log.flush()
    assert synced == [True, True]


@pytest.mark.parametrize("batches_left", [0, 1])
def test_a_segment_that_lost_its_end_ends_the_log(tmp_path: Path, batches_left: int) -> None:
    """Its last pages were not written before the power cut, but those of the next segment were."""
    one = OneLog(tmp_path).with_config(segment_bytes=2 * SIZE)
    filled(one, 7).segments.close_files()
    with one.file(2, ".log").open("r+b") as file:
        file.truncate(batches_left * SIZE)
    log = one.open(recovery_point=2)
    assert (log.log_end_offset, [segment.base_offset for segment in log.segments]) == (2 + batches_left, [0, 2])
    assert [header.base_offset for header in read_all(log)] == list(range(2 + batches_left))
    assert append(log, batch(1)).base_offset == 2 + batches_left


@pytest.mark.parametrize(
    "cut", [lambda log: truncate_to(log, 3), lambda log: truncate_fully_and_start_at(log, 0, NOW_MS)]
)
def test_an_interrupted_truncation_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: Callable[[Log], None]
) -> None:
    """This holds for each step, and however little of the truncation reaches the disk."""
    one = OneLog(tmp_path).with_config(segment_bytes=2 * SIZE)
    log = filled(one, 12)
    bases = [segment.base_offset for segment in log.segments]
    left: list[list[int]] = []
    rename, sync_dir = PosixFileSystem.rename, PosixFileSystem.sync_dir

    def noted(self: PosixFileSystem, old: str, new: str) -> None:
        rename(self, old, new)
        left.append(sorted(int(path.stem) for path in one.directory.glob("*.log")))

    synced: list[str] = []

    def noted_sync(self: PosixFileSystem, path: str) -> None:
        synced.append(path)
        sync_dir(self, path)

    monkeypatch.setattr(PosixFileSystem, "rename", noted)
    monkeypatch.setattr(PosixFileSystem, "sync_dir", noted_sync)
    cut(log)
    assert len(left) > len(bases)
    assert all(found == bases[: len(found)] for found in left)
    assert synced == [str(one.directory)]


def test_a_log_that_ends_before_its_start_offset_is_reset_to_it(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    filled(one, 3).segments.close_files()
    one.log_start_offset = 10
    log = one.open()
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert append(log, batch(1)).base_offset == 10


def test_files_of_an_interrupted_deletion_are_removed_and_a_finished_swap_is_completed(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=2 * SIZE)
    log = filled(one, 6)
    close_logs([log])
    content = one.file(0, ".log").read_bytes() + one.file(2, ".log").read_bytes()
    one.file(0, ".log.swap").write_bytes(content)
    one.file(4, ".log.cleaned").write_bytes(b"half")
    one.file(9, ".log.deleted").write_bytes(b"gone")
    again = one.open(recovery_point=6, clean=True)
    assert [segment.base_offset for segment in again.segments] == [0, 4]
    assert len(read_all(again)) == 6
    left = {path.suffix for path in one.directory.iterdir()}
    assert left <= {".log", ".index", ".timeindex", ".snapshot", ""}
