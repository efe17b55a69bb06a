"""Logs that are truncated, retained or deleted around a round of compaction."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cleaner_samples import dirty
from compaction_samples import PLANES, OneCompactedLog

from barnabas_broker.app.compaction import make_cleaner
from barnabas_broker.storage.helper.helper import HelperDied
from barnabas_broker.storage.helper.requests import CleanSegments, MapKeys, Request
from barnabas_broker.storage.logs.retention import delete_segments
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at, truncate_to
from barnabas_core.config.broker_config import parse_broker_config


def gone(one: OneCompactedLog) -> None:
    one.logs.delete(PLANES)


def retained(one: OneCompactedLog) -> None:
    delete_segments(one.log, [one.log.segments.first], one.clock.now_ms())


def truncated(one: OneCompactedLog) -> None:
    truncate_fully_and_start_at(one.log, 4, one.clock.now_ms())


def cut_in_place(one: OneCompactedLog) -> None:
    """The first segment stays, and ends earlier; what comes after has the offsets of what was cut."""
    if one.log.log_end_offset == 4:
        truncate_to(one.log, 1)
        one.append([(b"b", b"after the cut"), (b"c", b"after the cut"), (b"d", b"after the cut")])
        one.roll()


@pytest.mark.parametrize("when", [MapKeys, CleanSegments])
def test_a_log_that_waits_for_its_checkpoints_meanwhile_is_compacted_later(tmp_path: Path, when: type) -> None:
    """As one does that moves, or fetches what its leader has compacted: its producers are not known until then."""
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


def test_a_truncation_takes_back_what_counts_as_compacted_after_a_crash_too(tmp_path: Path) -> None:
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


def test_a_log_that_is_cut_where_it_was_compacted_begins_anew(tmp_path: Path) -> None:
    """Else a key is gone whose newer value was cut, and whose older one was removed for it: the leader has that."""
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


def test_a_log_that_is_cut_within_a_round_of_compaction_begins_anew(tmp_path: Path) -> None:
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
    """A clean shutdown, which calls a round off."""
    one.logs.shutdown(lambda _: None)
    one.open()
    assert one.logs.was_clean


@pytest.mark.parametrize("end", [OneCompactedLog.crash, stop])
@pytest.mark.parametrize(("cut_at", "end_offset"), [(4, 0), (7, 7)])
def test_a_log_that_is_cut_after_a_broker_has_ended_within_a_round_begins_anew(
    tmp_path: Path, cut_at: int, end_offset: int, end: Callable[[OneCompactedLog], None]
) -> None:
    """No checkpoint has how far that round had come; the segment that takes the appends was not in it."""
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
    assert 0 not in one.records(), "a newer one is there"
    truncate_to(one.log, cut_at)
    assert one.log.log_end_offset == end_offset


def test_a_log_that_is_cut_above_what_was_compacted_keeps_the_rest(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    assert one.clean()
    end_offset = one.log.log_end_offset
    one.append([(b"x", b"1")])
    truncate_to(one.log, end_offset)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, end_offset)


@pytest.mark.parametrize("change", [gone, retained, truncated])
@pytest.mark.parametrize("when", ["before the work", "after the work"])
def test_a_log_that_changes_meanwhile_is_not_touched_and_has_not_failed(
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
def test_what_is_not_committed_is_cut_from_a_compacted_log_and_the_rest_stays(tmp_path: Path, cut_at: int) -> None:
    """A replica in sync may be cut so, by a leader in sync; it must not be without records while it counts as one.

    Its uncommitted end goes over a roll: before the active segment is not before the high watermark.
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


def test_a_log_that_is_cut_below_its_high_watermark_begins_anew_after_a_start(tmp_path: Path) -> None:
    """Only an election of a replica that is not in sync does that, and then its records decide."""
    one = OneCompactedLog(tmp_path)
    for number in range(8):
        one.append([(b"key %d" % number, b"value")])
    one.logs.shutdown(lambda _: 4)
    one.open()
    truncate_to(one.log, 3)
    assert one.log.log_end_offset == 0


@pytest.mark.parametrize(("checkpointed", "removed"), [(0, False), (3, False), (6, True)])
async def test_nothing_is_removed_for_a_record_past_the_high_watermark_in_the_checkpoint(
    tmp_path: Path, checkpointed: int, removed: bool
) -> None:
    """A start has that one, and takes all below it for compacted, and nothing above."""
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
