"""Appending to a log and reading from it."""

from pathlib import Path

import pytest
from storage_samples import OneLog, append, batch, bytes_of, headers_in, read_all

from barnabas_broker.storage.logs.truncation import delete_segments
from barnabas_core.errors import ApiError, ErrorCode


def test_offsets_rise_by_the_records_of_each_batch(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    assert [append(log, batch(records)).base_offset for records in (1, 3, 2)] == [0, 1, 4]
    assert log.log_end_offset == 6
    assert [(header.base_offset, header.last_offset) for header in read_all(log)] == [(0, 0), (1, 3), (4, 5)]


def test_a_batch_gets_the_leader_epoch_and_otherwise_stays_as_the_producer_sent_it(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    sent = batch(2)
    as_made = bytes(sent)
    append(log, sent, leader_epoch=7)
    stored = bytes_of(log.read(0, 1000, 2, at_least_one_batch=True))
    assert headers_in(stored)[0].leader_epoch == 7
    assert stored[16:] == as_made[16:]


def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(3))
    append(log, batch(3))
    assert headers_in(bytes_of(log.read(4, 1000, 6, at_least_one_batch=True)))[0].base_offset == 3


def test_a_read_returns_nothing_at_or_past_the_maximum_offset(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    for _ in range(4):
        append(log, batch(2))
    headers = headers_in(bytes_of(log.read(0, 10_000, 4, at_least_one_batch=True)))
    assert [header.base_offset for header in headers] == [0, 2]
    assert log.read(4, 10_000, 4, at_least_one_batch=True) is None


def test_the_first_batch_is_whole_or_absent_and_the_last_may_be_cut(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    size = len(batch(1))
    for _ in range(3):
        append(log, batch(1))
    assert len(bytes_of(log.read(0, 10, 3, at_least_one_batch=True))) == size
    assert log.read(0, 10, 3, at_least_one_batch=False) is None
    assert len(bytes_of(log.read(0, size + 10, 3, at_least_one_batch=False))) == size + 10


def test_an_offset_outside_the_log_is_refused_with_the_range_of_the_log(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(5))
    log.increment_log_start_offset(2)
    for offset in (1, 6):
        with pytest.raises(
            ApiError, match=f"offset {offset} of flights-0 is out of range; the log has offsets 2 to 5"
        ) as refused:
            log.read(offset, 100, 5, at_least_one_batch=True)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(5, 100, 5, at_least_one_batch=True) is None


def test_a_reader_at_the_tail_continues_where_its_last_read_ended(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    offset = 0
    for _ in range(30):
        append(log, batch(2))
        headers = headers_in(bytes_of(log.read(offset, 10_000, log.log_end_offset, at_least_one_batch=True)))
        assert [header.base_offset for header in headers] == [offset]
        offset = headers[-1].last_offset + 1


def test_a_slice_can_be_read_after_its_segment_is_deleted(tmp_path: Path) -> None:
    log = OneLog(tmp_path).with_config(segment_bytes=100).open()
    append(log, batch(1))
    found = log.read(0, 1000, 1, at_least_one_batch=True)
    append(log, batch(1))
    delete_segments(log, [log.segments.first], now_ms=0)
    assert headers_in(bytes_of(found))[0].base_offset == 0


def test_a_log_with_more_segments_than_open_files_can_be_read(tmp_path: Path) -> None:
    one = OneLog(tmp_path, open_files_max=2).with_config(segment_bytes=100)
    log = one.open()
    for _ in range(9):
        append(log, batch(1))
    assert len(log.segments) == 9
    assert len(read_all(log)) == 9
    assert len(one.environment.open_files) == 2
