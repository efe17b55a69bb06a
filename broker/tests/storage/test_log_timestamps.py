"""Offsets by time: ListOffsets with a timestamp and with -3."""

import asyncio
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_samples import NOW_MS, OneLog, append, batch

from barnabas_broker.storage.logs import offset_lookup
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_loader import close_logs
from barnabas_broker.storage.logs.offset_lookup import TimestampOffset, max_timestamp, offset_for_timestamp
from barnabas_broker.wire import records as records_module
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch, first_record_since
from barnabas_core.config.log_config import LogConfig, TimestampType
from barnabas_core.loop_turns import FairTurn
from harness.manual_clock import ManualClock


def offset_for(log: Log, timestamp_ms: int, offset_max: int) -> TimestampOffset | None:
    return asyncio.run(offset_for_timestamp(log, timestamp_ms, offset_max, FairTurn(ManualClock(), things_max=1)))


def largest(log: Log) -> TimestampOffset | None:
    return asyncio.run(max_timestamp(log, FairTurn(ManualClock(), things_max=1)))


def found(log: Log, timestamp_ms: int) -> int | None:
    answer = offset_for(log, timestamp_ms, log.log_end_offset)
    return answer.offset if answer else None


def test_the_first_record_at_or_after_a_timestamp_is_found_inside_its_batch(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(timestamps=[10, 20, 30]), leader_epoch=1)
    append(log, batch(timestamps=[15, 40]), leader_epoch=2)
    assert [found(log, timestamp) for timestamp in (5, 10, 11, 30, 31, 40)] == [0, 0, 1, 2, 4, 4]
    assert offset_for(log, 41, 5) is None
    assert offset_for(log, 31, 5) == TimestampOffset(40, 4, 2)
    assert offset_for(log, 31, 4) is None


def test_records_below_the_log_start_offset_are_not_found(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(timestamps=[10, 20, 30]))
    log.increment_log_start_offset(2)
    assert found(log, 5) == 2


def test_the_largest_timestamp_is_returned_with_its_first_record(tmp_path: Path) -> None:
    log = OneLog(tmp_path).with_config(segment_bytes=200).open()
    assert largest(log) is None
    append(log, batch(timestamps=[10, 20]))
    append(log, batch(timestamps=[15, 50, 50, 12]))
    append(log, batch(timestamps=[30]))
    assert largest(log) == TimestampOffset(50, 3, 0)


def test_with_log_append_time_all_records_have_the_brokers_time(tmp_path: Path) -> None:
    log = OneLog(tmp_path, LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)).open()
    sent = batch(timestamps=[10, 20])
    appended = append(log, sent, now_ms=NOW_MS + 7)
    assert appended.log_append_time_ms == NOW_MS + 7
    assert parse_header(sent, 0).max_timestamp_ms == NOW_MS + 7
    assert largest(log) == TimestampOffset(NOW_MS + 7, 0, 0)
    assert found(log, 10_000) == 0


def test_a_batch_whose_records_cannot_be_decoded_is_found_as_a_whole(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(timestamps=[10, 20]))
    broken = batch(timestamps=[30, 40])
    broken[61] = 0x7F
    append(log, broken)
    assert offset_for(log, 40, 4) == TimestampOffset(40, 2, 0)


@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=3), min_size=1, max_size=30),
    timestamp=st.integers(0, 61),
    reopened=st.booleans(),
)
def test_a_lookup_by_timestamp_agrees_with_a_linear_search(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], timestamp: int, reopened: bool
) -> None:
    one = OneLog(tmp_path_factory.mktemp("log")).with_config(segment_bytes=600, index_interval_bytes=100)
    log = one.open()
    for timestamps in batches:
        append(log, batch(timestamps=timestamps))
    if reopened:
        close_logs([log])
        log = one.open(recovery_point=log.log_end_offset, clean=True)
    records = [time for timestamps in batches for time in timestamps]
    expected = next((offset for offset, time in enumerate(records) if time >= timestamp), None)
    assert found(log, timestamp) == expected
    newest = largest(log)
    assert newest is not None
    assert newest.timestamp_ms == max(records)
    assert records[newest.offset] == max(records)


def test_a_large_batch_is_unpacked_in_a_thread_and_no_record_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, threads = OneLog(tmp_path).open(), list[int]()
    records = [Record(number, number, None, bytes(20)) for number in range(10_000)]
    for attributes in (0, 4):
        append(log, memoryview(encode_batch(records, attributes=attributes)))
    append(log, batch(timestamps=[20_000]))

    def observed(*arguments: object) -> object:
        threads.append(threading.get_ident())
        return first_record_since(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(offset_lookup, "first_record_since", observed)
    monkeypatch.setattr(records_module, "Record", None)
    assert found(log, 9_999) == 9_999
    assert found(log, 15_000) == 20_000
    log.increment_log_start_offset(10_001)
    assert found(log, 9_999) == 19_999
    here = threading.get_ident()
    assert [each == here for each in threads] == [False, True, False]


async def test_a_search_through_many_segments_yields_to_other_tasks(tmp_path: Path) -> None:
    log = OneLog(tmp_path).with_config(segment_bytes=100).open()
    for number in range(50):
        append(log, batch(timestamps=[number]))
    turns = [0]

    async def beside() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(beside())
    assert await offset_for_timestamp(log, 49, 50, FairTurn(ManualClock(), things_max=5)) == TimestampOffset(49, 49, 0)
    others.cancel()
    assert turns[0] >= 9
