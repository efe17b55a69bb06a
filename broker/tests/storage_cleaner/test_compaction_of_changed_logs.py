"""Logs that are truncated, retained or deleted around a round of compaction."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cleaner_samples import dirty
from compaction_samples import PLANES, OneCompactedLog

from barnabas_broker.app.log_tasks import make_cleaner
from barnabas_broker.storage.helper import CleanSegments, HelperDied, MapKeys, Request
from barnabas_broker.storage.logs.truncation import delete_segments, truncate_fully_and_start_at, truncate_to
from barnabas_core.config.broker_config import parse_broker_config


def gone(one: OneCompactedLog) -> None:
    one.logs.delete(PLANES)


def retained(one: OneCompactedLog) -> None:
    delete_segments(one.log, [one.log.segments.first], one.clock.now_ms())


def truncated(one: OneCompactedLog) -> None:
    truncate_fully_and_start_at(one.log, 4, one.clock.now_ms())


def cut_in_place(one: OneCompactedLog) -> None:
    """Truncate within the first segment, and append other records at the offsets of the removed ones."""
    if one.log.log_end_offset == 4:
        truncate_to(one.log, 1)
        one.append([(b"b", b"after the cut"), (b"c", b"after the cut"), (b"d", b"after the cut")])
        one.roll()


@pytest.mark.parametrize("when", [MapKeys, CleanSegments])
def test_a_log_that_waits_for_its_checkpoints_during_a_round_is_compacted_later(tmp_path: Path, when: type) -> None:
    """A log that moves, or fetches compacted records, waits so: its producers are not known until then."""
    one = dirty(tmp_path)
    one.logs.truncated.on_added = lambda _: None
    one.helper.after = lambda request: one.log.await_checkpoint() if isinstance(request, when) else None
    one.clean()
    assert (one.storage_errors, one.cleaner.stats.rounds) == ([], 0)
    one.helper.after = lambda _: None
    one.logs.truncated.complete(one.logs.log_dirs[0])
    one.clean()
    assert one.cleaner.stats.rounds == 1


@pytest.mark.parametrize("when", [MapKeys, CleanSegments])
def test_a_truncation_within_a_segment_voids_the_round(tmp_path: Path, when: type) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", bytes(200))])
    one.append([(b"a", b"cut off"), (b"b", b"cut off"), (b"b", b"cut off")])
    one.roll()
    one.helper.after = lambda request: cut_in_place(one) if isinstance(request, when) else None
    one.clean()
    assert sorted(one.records().items())[1:] == [
        (at, (key, b"after the cut")) for at, key in zip((1, 2, 3), (b"b", b"c", b"d"), strict=True)
    ]
    one.crash()
    assert one.records()[0] == (b"a", bytes(200))
    assert len(one.records()) == 4


def test_a_truncation_lowers_the_offset_of_compaction_also_after_a_crash(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    assert one.clean()
    truncate_to(one.log, 2)
    one.append([(b"x", b"older")])
    one.append([(b"x", b"newer")])
    one.roll()
    one.append([(b"y", b"active")])
    one.crash()
    assert one.clean()
    assert [pair for pair in one.records().values() if pair[0] == b"x"] == [(b"x", b"newer")]


def test_a_log_that_is_truncated_in_its_compacted_part_is_emptied(tmp_path: Path) -> None:
    """A key would otherwise be lost whose newer value was truncated, and whose older value was compacted away."""
    one = OneCompactedLog(tmp_path)
    for key in (b"a", b"b", b"a", b"c"):
        one.append([(key, b"value")])
    one.roll()
    assert one.clean()
    assert sorted(one.records()) == [1, 2, 3]
    truncate_to(one.log, 2)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 0)
    one.append([(b"a", b"as the leader has it")])
    one.crash()
    assert one.records() == {0: (b"a", b"as the leader has it")}


def test_a_log_that_is_truncated_during_a_round_of_compaction_is_emptied(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path).with_config(segment_bytes=400)
    for key in (b"a", b"b", b"c", b"a", b"b", b"c"):
        one.append([(key, bytes(200))])
    one.roll()
    rewritten: list[Request] = []

    def cut_after_the_first_swap(request: Request) -> None:
        if isinstance(request, CleanSegments):
            rewritten.append(request)
            if len(rewritten) == 2:
                truncate_to(one.log, 4)

    one.helper.before = cut_after_the_first_swap
    one.clean()
    assert len(rewritten) == 2
    assert one.log.log_end_offset == 0


def stop(one: OneCompactedLog) -> None:
    """Do a clean shutdown, which cancels a round."""
    one.logs.shutdown(lambda _: None)
    one.open()
    assert one.logs.was_clean


@pytest.mark.parametrize("end", [OneCompactedLog.crash, stop])
@pytest.mark.parametrize(("cut_at", "end_offset"), [(4, 0), (7, 7)])
def test_a_log_truncated_in_the_part_that_an_interrupted_round_compacted_is_emptied(
    tmp_path: Path, cut_at: int, end_offset: int, end: Callable[[OneCompactedLog], None]
) -> None:
    """No checkpoint shows how far that round had come; the active segment was not part of it."""
    one = OneCompactedLog(tmp_path).with_config(segment_bytes=400)
    for key in (b"a", b"b", b"c", b"a", b"b", b"c"):
        one.append([(key, bytes(200))])
    one.roll()
    for key in (b"a", b"b"):
        one.append([(key, b"not compacted")])
    swapped: list[Request] = []

    def die_after_the_first_swap(request: Request) -> None:
        swapped.append(request)
        if len(swapped) == 3:
            raise HelperDied("with the broker")

    one.helper.before = die_after_the_first_swap
    one.clean()
    end(one)
    assert one.log.compaction.clean_until is None
    assert 0 not in one.records(), "the log has a newer record of its key"
    truncate_to(one.log, cut_at)
    assert one.log.log_end_offset == end_offset


def test_a_log_that_is_truncated_above_its_compacted_part_keeps_the_rest(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    assert one.clean()
    end_offset = one.log.log_end_offset
    one.append([(b"x", b"1")])
    truncate_to(one.log, end_offset)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, end_offset)


@pytest.mark.parametrize("change", [gone, retained, truncated])
@pytest.mark.parametrize("when", ["before the work", "after the work"])
def test_a_round_does_not_touch_a_log_that_changed_meanwhile_and_does_not_fail(
    tmp_path: Path, change: Callable[[OneCompactedLog], None], when: str
) -> None:
    one = dirty(tmp_path)

    def before(request: Request) -> None:
        if isinstance(request, CleanSegments):
            if when == "before the work":
                change(one)
            else:
                one.helper.worker.answer(request)
                change(one)

    one.helper.before = before
    one.clean()
    assert one.storage_errors == []
    assert one.cleaner.stats.rounds == 0
    assert not list(one.directory.glob("*.swap"))
    if change is not gone:
        assert one.log.log_end_offset == 4
        assert min(one.records(), default=4) >= (2 if change is retained else 4)
        one.crash()
        assert one.log.log_end_offset == 4
        assert min(one.records(), default=4) >= (2 if change is retained else 4)


@pytest.mark.parametrize("cut_at", [4, 5])
def test_a_truncation_of_uncommitted_records_keeps_the_rest_of_a_compacted_log(tmp_path: Path, cut_at: int) -> None:
    """A leader in sync may truncate an in-sync replica so, which must not lose its records while it is in sync.

    The uncommitted records span a roll: some records before the active segment are past the high watermark.
    """
    one = OneCompactedLog(tmp_path)
    for number in range(8):
        one.append([(b"key %d" % number, b"value")])
        if number == 5:
            one.roll()
    one.logs.shutdown(lambda _: 4)
    one.open()
    assert [segment.base_offset for segment in one.log.segments] == [0, 6]
    truncate_to(one.log, cut_at)
    assert sorted(one.records()) == list(range(cut_at))


def test_a_log_that_is_truncated_below_its_high_watermark_after_a_start_is_emptied(tmp_path: Path) -> None:
    """Only an unclean election does that, and then the records of the elected replica count."""
    one = OneCompactedLog(tmp_path)
    for number in range(8):
        one.append([(b"key %d" % number, b"value")])
    one.logs.shutdown(lambda _: 4)
    one.open()
    truncate_to(one.log, 3)
    assert one.log.log_end_offset == 0


@pytest.mark.parametrize(("checkpointed", "removed"), [(0, False), (3, False), (6, True)])
async def test_no_record_is_removed_for_a_newer_one_past_the_checkpointed_high_watermark(
    tmp_path: Path, checkpointed: int, removed: bool
) -> None:
    """A start reads that high watermark, and takes all records below it for compacted, and none above."""
    one = OneCompactedLog(tmp_path)
    partition = SimpleNamespace(log=one.log, failure=None)
    replicas: Any = SimpleNamespace(
        lookup=SimpleNamespace(find=lambda *_: partition), failures=SimpleNamespace(log_failed=None)
    )
    config = parse_broker_config(
        {"node.id": "1", "log.dirs": str(tmp_path), "log.cleaner.dedupe.buffer.size": "1048576"}
    )
    helper: Any = one.helper
    cleaner = make_cleaner(one.logs, replicas, helper, one.timers, one.clock, lambda: config)
    for _ in range(6):
        one.append([(b"key", b"value")])
    one.log.commit_to(6)
    one.roll()
    if checkpointed:
        one.logs.checkpoint(lambda _: checkpointed)
    await cleaner.clean_dirtiest()
    assert (len(one.records()) < 6) is removed
