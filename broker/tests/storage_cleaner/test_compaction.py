"""The records that compaction keeps and removes (F24)."""

from pathlib import Path
from uuid import UUID

import pytest
from compaction_samples import COMPACT, NOW_MS, PLANES, OneCompactedLog
from msgspec.structs import replace

from barnabas_broker.storage.helper import CleanSegments, Request
from barnabas_broker.wire.record_batch import Codec
from barnabas_core.config.log_config import CleanupPolicy
from harness.retention import enforce_retention

DAY_MS = 86_400_000


def test_compaction_keeps_only_the_newest_record_of_a_key(tmp_path: Path) -> None:
    """This is the example of the documents: of two messages with one key the older one is stale."""
    one = OneCompactedLog(tmp_path)
    for key in (b"K1", b"K2", b"K1", b"K1"):
        one.append([(key, b"value")])
    one.roll()
    assert one.clean()
    assert {offset: key for offset, (key, _) in one.records().items()} == {1: b"K2", 3: b"K1"}
    assert one.log.log_end_offset == 4
    assert one.append([(b"K3", b"value")]) == 4


def test_the_active_segment_is_not_compacted(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", b"1"), (b"a", b"2")])
    assert not one.clean()
    one.roll()
    one.append([(b"a", b"3")])
    assert one.clean()
    assert one.records() == {1: (b"a", b"2"), 2: (b"a", b"3")}


def test_a_batch_that_keeps_all_records_is_copied_byte_for_byte(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", b"1"), (b"b", b"2")], codec=Codec.GZIP)
    size = one.file(0, ".log").stat().st_size
    before = one.file(0, ".log").read_bytes()
    one.append([(b"c", b"1"), (b"c", b"2")])
    one.roll()
    assert one.clean()
    assert one.file(0, ".log").read_bytes()[:size] == before
    assert one.file(0, ".log").stat().st_size < len(before) + 1000


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_keeps_codec_offsets_sequence_and_leader_epoch(tmp_path: Path, codec: Codec) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"x", b"first")])
    times = [NOW_MS, NOW_MS + 7, NOW_MS + 5]
    pairs = [(b"a", b"1" * 500), (b"b", b"2" * 500), (b"c", b"3" * 500)]
    one.append(pairs, codec=codec, timestamps=times, producer_id=9, sequence=40, leader_epoch=3)
    one.append([(b"b", b"later")], leader_epoch=3)
    one.roll()
    assert one.clean()
    header, records = one.batches()[1]
    assert (header.base_offset, header.last_offset_delta, header.compression) == (1, 2, codec)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, 40)
    assert (header.leader_epoch, header.record_count, header.max_timestamp_ms) == (3, 2, NOW_MS + 5)
    assert [(each.offset_delta, each.timestamp_ms, each.key) for each in records] == [
        (0, NOW_MS, b"a"),
        (2, NOW_MS + 5, b"c"),
    ]


def test_a_tombstone_is_removed_delete_retention_ms_after_the_first_pass(
    tmp_path: Path,
) -> None:
    one = OneCompactedLog(tmp_path).with_config(delete_retention_ms=DAY_MS)
    one.append([(b"a", b"1")])
    one.append([(b"a", None), (b"b", b"2")], timestamps=[NOW_MS - 5, NOW_MS - 3])
    one.roll()
    one.clock.passed_ms += 10 * DAY_MS  # The wait for the first pass does not count.
    first_pass_ms = one.clock.now_ms()
    assert one.clean()
    header, records = one.batches()[0]
    assert header.attributes & 0x40
    assert header.base_timestamp_ms == first_pass_ms + DAY_MS
    assert [(each.timestamp_ms, each.key) for each in records] == [(NOW_MS - 5, b"a"), (NOW_MS - 3, b"b")]
    one.clock.passed_ms += DAY_MS - 1
    dirty_again(one)
    assert one.clean()
    assert one.records()[1] == (b"a", None)
    one.clock.passed_ms += 1
    dirty_again(one)
    assert one.clean()
    assert {key for key, _ in one.records().values()} == {b"b", b"new"}


def dirty_again(one: OneCompactedLog) -> None:
    one.append([(b"new", b"value")])
    one.roll()


def test_a_delete_horizon_survives_a_pass_that_removes_another_record_of_the_batch(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path).with_config(delete_retention_ms=DAY_MS)
    one.append([(b"a", None), (b"b", b"2")])
    one.roll()
    assert one.clean()
    horizon_ms = one.batches()[0][0].base_timestamp_ms
    one.clock.passed_ms += 1000
    one.append([(b"b", b"3")])
    one.roll()
    assert one.clean()
    header, records = one.batches()[0]
    assert (header.base_timestamp_ms, [each.key for each in records]) == (horizon_ms, [b"a"])
    assert records[0].timestamp_ms == NOW_MS


def test_records_without_a_key_are_removed_and_counted(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(None, b"1"), (b"a", b"2"), (None, b"3")])
    one.append([(b"b", b"2")])
    one.roll()
    assert one.clean()
    assert one.records() == {1: (b"a", b"2"), 3: (b"b", b"2")}
    assert one.cleaner.stats.records_without_key == 2


def test_the_last_batch_of_an_active_producer_is_kept_without_records(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", b"1")], producer_id=5, sequence=0)
    one.append([(b"a", b"2"), (b"b", b"2")], producer_id=5, sequence=1)
    one.append([(b"a", b"3"), (b"b", b"3"), (b"c", b"3")])
    one.roll()
    assert one.clean()
    kept, _ = one.batches()
    assert (kept[0].base_offset, kept[0].last_offset, kept[0].record_count) == (1, 2, 0)
    assert (kept[0].producer_id, kept[0].base_sequence, kept[0].max_timestamp_ms) == (5, 1, NOW_MS)
    one.crash()
    assert one.append([(b"a", b"2"), (b"b", b"2")], producer_id=5, sequence=1) == 1, "a duplicate is recognized"
    assert one.append([(b"z", b"2")], producer_id=5, sequence=3) == 6


def test_the_last_batch_of_a_compacted_segment_is_kept_to_preserve_the_log_end_offset(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", None)])
    one.append([(None, b"no key"), (None, b"no key")])
    one.roll()
    assert one.clean()
    last = one.batches()[-1][0]
    assert (last.base_offset, last.last_offset, last.record_count) == (1, 2, 0)
    one.crash()
    assert one.log.log_end_offset == 3


def test_a_control_batch_is_kept(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    marker = (b"\0\0\0\1", b"\0\0\0\0\0\0")
    one.append([marker], attributes=0x30, producer_id=3)
    one.append([marker], attributes=0x30, producer_id=4)
    one.append([(b"a", b"1"), (b"a", b"2")])
    one.roll()
    assert one.clean()
    assert [header.is_control for header, _ in one.batches()] == [True, True, False]


def test_nothing_at_or_past_the_stable_offset_is_compacted(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    for _ in range(3):
        one.append([(b"a", b"1"), (b"a", b"2")])
        one.roll()
    one.stable_offset = 3
    assert one.clean()
    assert sorted(one.records()) == [1, 2, 3, 4, 5]
    one.stable_offset = 6
    assert one.clean()
    assert sorted(one.records()) == [5]


def test_records_younger_than_min_compaction_lag_ms_are_not_compacted(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path).with_config(min_compaction_lag_ms=DAY_MS)
    one.append([(b"a", b"1"), (b"a", b"2")])
    one.roll()
    one.clock.passed_ms += DAY_MS - 1
    assert not one.clean()
    one.clock.passed_ms += 1
    assert one.clean()


def test_a_log_is_compacted_past_its_dirty_ratio_or_its_max_compaction_lag(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", bytes(1000))])
    one.roll()
    assert one.clean()
    one.with_config(min_cleanable_dirty_ratio=0.5)
    one.append([(b"a", bytes(500))])
    one.roll()
    assert not one.clean()
    assert 30 < one.cleaner.stats.max_dirty_percent < 50
    one.with_config(max_compaction_lag_ms=DAY_MS)
    one.clock.passed_ms += DAY_MS
    assert not one.clean()
    one.clock.passed_ms += 1
    assert one.clean()
    assert one.cleaner.stats.recopy_percent < 50


def test_small_segments_are_merged_up_to_segment_bytes(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path).with_config(segment_bytes=1000)
    for number in range(10):
        one.append([(b"key %d" % number, bytes(200))])
        one.roll()
    assert one.clean()
    sizes = [segment.size_bytes for segment in one.log.segments]
    assert len(sizes) == 5
    assert max(sizes) <= 1000
    assert len(one.records()) == 10


def test_delete_retention_and_compaction_work_together(tmp_path: Path) -> None:
    both = COMPACT | {CleanupPolicy.DELETE}
    one = OneCompactedLog(tmp_path).with_config(cleanup_policies=both, retention_ms=DAY_MS)
    one.append([(b"old", b"1"), (b"old", b"2")])
    one.roll()
    assert one.clean()
    one.clock.passed_ms += DAY_MS + 1
    one.append([(b"new", b"1"), (b"new", b"2")])
    one.roll()
    assert enforce_retention(one.log, one.clock.now_ms(), one.log.log_end_offset) == 1
    assert one.log.log_start_offset == 2
    assert one.clean()
    assert one.records() == {3: (b"new", b"2")}


def test_records_without_timestamps_keep_the_age_of_their_file(tmp_path: Path) -> None:
    both = COMPACT | {CleanupPolicy.DELETE}
    one = OneCompactedLog(tmp_path).with_config(cleanup_policies=both)
    one.append([(b"a", b"1"), (b"a", b"2")], timestamps=[-1, -1])
    one.roll()
    one.files.set_modified_ms(str(one.file(0, ".log")), NOW_MS - 10 * DAY_MS)
    assert one.clean()
    assert one.log.segments.first.retention_timestamp_ms() == NOW_MS - 10 * DAY_MS


def test_a_log_with_more_keys_than_the_map_holds_is_compacted_in_several_rounds(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.settings = replace(one.settings, log_cleaner_dedupe_buffer_size=24 * 5, log_cleaner_io_buffer_load_factor=0.9)
    for number in range(20):
        one.append([(b"key %d" % (number % 10), b"value %d" % number)])
    one.roll()
    rounds = 0
    while one.clean():
        rounds += 1
        assert rounds < 20
    assert rounds > 2
    assert one.records() == {number: (b"key %d" % (number % 10), b"value %d" % number) for number in range(10, 20)}


def test_one_batch_with_more_keys_than_the_map_holds_is_still_compacted(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.settings = replace(one.settings, log_cleaner_dedupe_buffer_size=24 * 5)
    one.append([(b"key %d" % number, b"1") for number in range(20)])
    one.append([(b"key %d" % number, b"2") for number in range(20)])
    one.roll()
    rounds = 0
    while one.clean():
        rounds += 1
        assert rounds < 20
    assert sorted(one.records()) == list(range(20, 40))


def with_one_byte(request: Request) -> Request:
    """Return the request with a limit of one byte, so that a compressed batch cannot be unpacked."""
    if isinstance(request, CleanSegments):
        return replace(request, rules=replace(request.rules, unpacked_bytes_max=1))
    return replace(request, unpacked_bytes_max=1)


def test_a_batch_that_cannot_be_unpacked_is_kept_and_the_rest_is_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", b"1"), (b"a", b"2")])
    one.append([(b"b", b"1")], attributes=Codec.ZSTD)
    one.append([(b"a", b"3")])
    one.roll()
    answer = one.helper.worker.answer
    monkeypatch.setattr(one.helper.worker, "answer", lambda request: answer(with_one_byte(request)))
    assert one.clean()
    assert one.cleaner.stats.batches_not_understood == 1
    assert sorted(one.records()) == [2, 3]


def test_the_cleaner_checkpoint_has_the_format_of_kafka_and_is_used_after_a_restart(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", b"1"), (b"a", b"2")])
    one.roll()
    assert one.clean()
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nplanes 0 2\n"
    one.crash()
    assert not one.clean()


def test_a_recreated_topic_is_compacted_from_its_first_record(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", b"1"), (b"a", b"2")])
    one.roll()
    assert one.clean()
    one.logs.delete(PLANES)
    one.logs.create(PLANES, UUID(int=8), one.config)
    one.append([(b"a", b"1"), (b"a", b"2"), (b"a", b"3")])
    one.roll()
    assert one.clean()
    assert sorted(one.records()) == [2]
