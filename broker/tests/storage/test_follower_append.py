"""A follower appends the leader's batches byte for byte."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import NOW_MS, OneLog, append, batch, bytes_of, read_all

from barnabas_broker.storage.disk.files import LogFile, PosixFileSystem
from barnabas_broker.storage.errors import DiskFull
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import append_as_follower, truncate_fully_and_start_at, truncate_to
from barnabas_broker.wire.record_batch import HEADER, assign_offset, parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.errors import ApiError, ErrorCode
from harness.wrapped_file import WrappedFile

ANY_EPOCH = 2**31 - 1


def stored(
    base_offset: int, records: int = 1, *, epoch: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    """Return a batch as the leader's log has it; `producer` is id, epoch and base sequence."""
    producer_id, producer_epoch, sequence = producer
    data = batch(records, producer_id=producer_id, epoch=producer_epoch, sequence=sequence)
    assign_offset(data, 0, base_offset, epoch)
    return bytes(data)


def follow(log: Log, *batches: bytes, epoch_max: int = ANY_EPOCH, high_watermark: int = 0) -> int:
    return append_as_follower(log, memoryview(b"".join(batches)), epoch_max, high_watermark, NOW_MS)


def all_bytes(log: Log) -> bytes:
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)


def test_batches_are_written_unchanged_with_the_gaps_of_compaction(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    sent = [stored(3, 2), stored(5, 1, epoch=1), stored(20, 4, epoch=4)]
    assert follow(log, *sent) == len(b"".join(sent))
    assert follow(log, stored(30, epoch=4))
    assert [(header.base_offset, header.leader_epoch) for header in read_all(log)] == [(3, 0), (5, 1), (20, 4), (30, 4)]
    assert log.log_end_offset == 31
    assert all_bytes(log).startswith(b"".join(sent))


def test_an_epoch_starts_at_the_end_of_the_batch_before_a_gap_left_by_compaction(tmp_path: Path) -> None:
    """With a later start a replica with other records in the gap would take them for the leader's."""
    log = OneLog(tmp_path).open()
    follow(log, stored(0, 2), stored(5, 1, epoch=1))
    follow(log, stored(20, 4, epoch=4))
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 2), (4, 6)]
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (1, 6)


def test_many_batches_are_appended_with_one_write(tmp_path: Path) -> None:
    writes: list[int] = []

    class CountingFile(WrappedFile):
        def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
            writes.append(len(data))
            super().append(data, position)

    class Counting(PosixFileSystem):
        def open_file(self, path: str) -> LogFile:
            file = super().open_file(path)
            return CountingFile(file) if path.endswith(".log") else file

    log = OneLog(tmp_path, files=Counting()).open()
    sent = [stored(offset) for offset in range(50)]
    follow(log, *sent)
    assert writes == [len(b"".join(sent))]


def test_an_incomplete_last_batch_is_left_out(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    whole, cut = stored(0, 2), stored(2)
    for end in (1, 60, 61, len(cut) - 1):
        before = log.log_end_offset
        assert follow(log, stored(before), cut[:end]) == len(stored(before))
        assert log.log_end_offset == before + 1
    assert follow(log, b"") == 0
    assert follow(log, whole[:30]) == 0


def broken_crc(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def with_magic(data: bytes) -> bytes:
    return data[:16] + b"\1" + data[17:]


def with_length(data: bytes) -> bytes:
    return bytes(HEADER.pack(*parse_header(data, 0)._replace(length=-70))) + data[HEADER.size :]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (broken_crc(stored(6, epoch=3)), "CRC"),
        (with_magic(stored(6)), "magic 1"),
        (with_length(stored(6)), "length -70"),
        (stored(4), "expected offset 6 or higher"),
        (stored(6, epoch=2), "leader epoch is 2, below epoch 3 of the batch before"),
    ],
    ids=["crc", "magic", "length", "offset", "epoch"],
)
def test_an_invalid_batch_is_refused_and_nothing_of_its_fetch_is_written(tmp_path: Path, bad: bytes, why: str) -> None:
    log = OneLog(tmp_path).open()
    follow(log, stored(0, 5, epoch=3))
    before = all_bytes(log)
    with pytest.raises(ApiError, match=why) as refused:
        follow(log, stored(5, epoch=3), bad)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (all_bytes(log), log.log_end_offset) == (before, 5)
    assert follow(log, stored(5, epoch=3))


def test_batches_of_a_later_epoch_than_the_followers_are_not_appended_yet(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    first = stored(0, epoch=1)
    assert follow(log, first, stored(1, epoch=2), epoch_max=1) == len(first)
    assert log.log_end_offset == 1


def test_segments_are_rolled_between_batches_by_size_and_by_relative_offset(tmp_path: Path) -> None:
    log = OneLog(tmp_path).with_config(segment_bytes=250).open()
    follow(log, *(stored(offset) for offset in range(10)))
    assert all(segment.size_bytes <= 250 for segment in log.segments)
    assert [header.base_offset for header in read_all(log)] == list(range(10))
    far = 2**33
    follow(log, stored(far), stored(2 * far))
    assert [segment.base_offset for segment in log.segments][-2:] == [far, 2 * far]
    assert read_all(log)[-1].base_offset == 2 * far


def test_the_first_batch_of_a_new_replica_may_have_a_very_large_offset(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    log = one.open()
    follow(log, stored(2**40), stored(2**40 + 1))
    assert [segment.base_offset for segment in log.segments] == [2**40]
    assert [header.base_offset for header in read_all(one.open())] == [2**40, 2**40 + 1]


def test_a_log_that_starts_within_the_leaders_first_batch_takes_all_of_that_batch(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    truncate_fully_and_start_at(log, 7, NOW_MS)
    follow(log, stored(5, 4), stored(9))
    assert (log.log_start_offset, log.log_end_offset) == (7, 10)
    assert [header.base_offset for header in read_all(log)] == [5, 9]
    with pytest.raises(ApiError, match="expected offset 10 or higher"):
        follow(log, stored(9, 3))


def test_a_follower_that_becomes_leader_knows_the_producers(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    follow(log, stored(0, 2, producer=(9, 0, 0)), stored(2, producer=(9, 0, 2)))
    again = append(log, batch(1, producer_id=9, epoch=0, sequence=2))
    assert (again.base_offset, again.duplicate) == (2, True)
    assert append(log, batch(1, producer_id=9, epoch=0, sequence=3)).base_offset == 3


class FullDisk(PosixFileSystem):
    """A file system that takes `writes_left` more writes to `.log` files."""

    writes_left = 10**9

    def open_file(self, path: str) -> LogFile:
        file = super().open_file(path)
        return FileOnFullDisk(self, file) if path.endswith(".log") else file


class FileOnFullDisk(WrappedFile):
    """A file that takes a write if its disk has space for it."""

    def __init__(self, disk: FullDisk, file: LogFile) -> None:
        super().__init__(file)
        self._disk = disk

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._disk.writes_left -= 1
        if self._disk.writes_left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(data, position)


def test_a_follower_continues_its_log_after_the_disk_was_full(tmp_path: Path) -> None:
    disk = FullDisk()
    log = OneLog(tmp_path, files=disk).with_config(segment_bytes=250).open()
    sent = [stored(offset, epoch=offset // 3) for offset in range(9)]
    disk.writes_left = 2
    with pytest.raises(DiskFull):
        follow(log, *sent)
    end = log.log_end_offset
    assert 0 < end < 9
    assert [header.base_offset for header in read_all(log)] == list(range(end))
    assert log.epochs.latest_epoch == (end - 1) // 3
    disk.writes_left = 10**9
    follow(log, *sent[end:])
    assert all_bytes(log) == b"".join(sent)


def test_the_part_of_a_fetch_that_fits_on_a_full_disk_is_synced_by_flush_messages(tmp_path: Path) -> None:
    """The next fetch confirms to the leader that all earlier records are on this disk."""
    disk = FullDisk()
    log = OneLog(tmp_path, files=disk).with_config(segment_bytes=250, flush_messages=1).open()
    disk.writes_left = 2
    with pytest.raises(DiskFull):
        follow(log, *(stored(offset) for offset in range(9)))
    assert 0 < log.log_end_offset < 9
    assert log.syncs.recovery_point == log.log_end_offset


@settings(max_examples=60)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 4000), max_size=8),
    segment_bytes=st.integers(200, 2000),
)
def test_a_follower_ends_with_the_leaders_bytes_however_fetches_divide_them(
    sizes: list[tuple[int, int, int]], cuts: list[int], segment_bytes: int
) -> None:
    offset, epoch, batches = 0, 0, []
    for records, gap, later in sizes:
        offset, epoch = offset + gap, epoch + later
        batches.append(stored(offset, records, epoch=epoch))
        offset += records
    everything = b"".join(batches)
    with tempfile.TemporaryDirectory() as folder:
        one = OneLog(Path(folder)).with_config(segment_bytes=segment_bytes)
        log, position = one.open(), 0
        for length in (*cuts, *([len(everything)] * 2)):
            position += follow(log, everything[position : position + length])
        assert all_bytes(log) == everything
        assert all(segment.size_bytes <= segment_bytes for segment in list(log.segments)[:-1])
        again = one.open()
        assert again.log_end_offset == offset
        assert again.epochs.latest_epoch == log.epochs.latest_epoch == epoch
        assert bytes_of(again.read(0, 10**6, offset, at_least_one_batch=True))
        log.segments.close_files()
        again.segments.close_files()


def test_an_epoch_whose_first_batch_did_not_fit_on_the_disk_has_not_begun(tmp_path: Path) -> None:
    disk = FullDisk()
    log = OneLog(tmp_path, files=disk).open()
    append(log, batch(2), leader_epoch=1)
    disk.writes_left = 0
    with pytest.raises(DiskFull):
        append(log, batch(1), leader_epoch=2)
    assert log.epochs.latest_epoch == 1
    disk.writes_left = 10**9
    append(log, batch(1), leader_epoch=3)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (3, 2)]


def test_truncating_at_the_end_forgets_an_epoch_without_records(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    follow(log, stored(0, 2, epoch=1))
    log.epochs.assign(3, 2)
    truncate_to(log, 5)
    assert (log.log_end_offset, log.epochs.latest_epoch) == (2, 1)
    assert follow(log, stored(2, epoch=2))
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (2, 2)]


def compacted(base_offset: int, offsets: int, left: int) -> bytes:
    """Return a batch of so many offsets, in which compaction has left `left` records."""
    records = [Record(offset, NOW_MS, b"key", b"value") for offset in range(offsets)]
    data = encode_batch(
        records[-left:], base_timestamp_ms=NOW_MS, max_timestamp_ms=NOW_MS, last_offset_delta=offsets - 1
    )
    assign_offset(data, 0, base_offset, 0)
    return bytes(data)


@pytest.mark.parametrize("sent", [[stored(0), stored(2)], [stored(1), stored(2)], [compacted(0, 3, 1)]])
def test_a_follower_truncated_where_its_leader_had_compacted_is_emptied(tmp_path: Path, sent: list[bytes]) -> None:
    """The truncation may remove the records that replaced earlier ones, which the follower never got."""
    log = OneLog(tmp_path).open()
    follow(log, *sent, high_watermark=5)
    follow(log, *(stored(offset) for offset in range(3, 9)), high_watermark=9)
    truncate_to(log, 4)
    assert (log.log_start_offset, log.log_end_offset, log.segments.size_bytes) == (0, 0, 0)


def test_a_follower_truncated_above_the_committed_records_keeps_the_rest_of_its_log(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    follow(log, stored(1), stored(2), high_watermark=5)
    follow(log, *(stored(offset) for offset in range(3, 9)), high_watermark=9)
    truncate_to(log, 5)
    assert [header.base_offset for header in read_all(log)] == [1, 2, 3, 4]
