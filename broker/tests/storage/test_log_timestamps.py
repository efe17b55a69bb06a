"""Offsets by time: ListOffsets with a timestamp and with -3."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import NOW_MS, OneLog, append, batch

from barnabas_broker.storage.log import Log
from barnabas_broker.storage.timestamp_lookup import TimestampOffset
from barnabas_broker.wire.record_batch import parse_header
from barnabas_core.config.log_config import LogConfig, TimestampType


def found(log: Log, timestamp_ms: int) -> int | None:
    answer = log.offset_for_timestamp(timestamp_ms, log.log_end_offset)
    return answer.offset if answer else None


def test_the_first_record_of_that_time_or_later_is_found_inside_its_batch(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(timestamps=[10, 20, 30]), leader_epoch=1)
    append(log, batch(timestamps=[15, 40]), leader_epoch=2)
    assert [found(log, timestamp) for timestamp in (5, 10, 11, 30, 31, 40)] == [0, 0, 1, 2, 4, 4]
    assert log.offset_for_timestamp(41, 5) is None
    assert log.offset_for_timestamp(31, 5) == TimestampOffset(40, 4, 2)
    assert log.offset_for_timestamp(31, 4) is None


def test_records_below_the_log_start_offset_are_not_found(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(timestamps=[10, 20, 30]))
    log.increment_log_start_offset(2)
    assert found(log, 5) == 2


def test_the_largest_timestamp_is_that_of_its_first_record(tmp_path: Path) -> None:
    log = OneLog(tmp_path).with_config(segment_bytes=200).open()
    assert log.max_timestamp() is None
    append(log, batch(timestamps=[10, 20]))
    append(log, batch(timestamps=[15, 50, 50, 12]))
    append(log, batch(timestamps=[30]))
    assert log.max_timestamp() == TimestampOffset(50, 3, 0)


def test_with_log_append_time_all_records_have_the_brokers_time(tmp_path: Path) -> None:
    log = OneLog(tmp_path, LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)).open()
    sent = batch(timestamps=[10, 20])
    appended = append(log, sent, now_ms=NOW_MS + 7)
    assert appended.log_append_time_ms == NOW_MS + 7
    assert parse_header(sent, 0).max_timestamp_ms == NOW_MS + 7
    assert log.max_timestamp() == TimestampOffset(NOW_MS + 7, 0, 0)
    assert found(log, 10_000) == 0


def test_a_batch_whose_records_cannot_be_decoded_is_found_as_a_whole(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(timestamps=[10, 20]))
    broken = batch(timestamps=[30, 40])
    broken[61] = 0x7F
    append(log, broken)
    assert log.offset_for_timestamp(40, 4) == TimestampOffset(40, 2, 0)


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=3), min_size=1, max_size=30),
    timestamp=st.integers(0, 61),
    reopened=st.booleans(),
)
def test_the_answer_is_that_of_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], timestamp: int, reopened: bool
) -> None:
    one = OneLog(tmp_path_factory.mktemp("log")).with_config(segment_bytes=600, index_interval_bytes=100)
    log = one.open()
    for timestamps in batches:
        append(log, batch(timestamps=timestamps))
    if reopened:
        log.close()
        log = one.open(recovery_point=log.log_end_offset, clean=True)
    records = [time for timestamps in batches for time in timestamps]
    expected = next((offset for offset, time in enumerate(records) if time >= timestamp), None)
    assert found(log, timestamp) == expected
    largest = log.max_timestamp()
    assert largest is not None
    assert largest.timestamp_ms == max(records)
    assert records[largest.offset] == max(records)
