"""Checks of a log as a whole, and the spans in which replicas are compared. No Spark runs here."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.files.segment_source import leader_epochs
from barnabas_jobs.planning.logs.batches import (
    CHECKPOINT_CONTRADICTS,
    ENDS_EARLY,
    EPOCH_GOES_BACK,
    OFFSET_GAP,
    OFFSETS_GO_BACK,
    REPLICAS_DIFFER,
)
from barnabas_jobs.planning.logs.replicas import (
    EpochBatch,
    EpochStart,
    Finding,
    LogRead,
    Place,
    SegmentRead,
    comparable,
    comparison_spans,
    ends_early,
    wrong_checkpoint,
    wrong_over_segments,
)

FIRST = SegmentRead(0, 0, 20, 0, 3)
SECOND = SegmentRead(20, 20, 60, 3, 3)
LOG = LogRead(
    place=Place(1, "/1", TopicPartition("flights", 0)),
    topic_id="a",
    segments=(FIRST, SECOND),
    lost_sight=frozenset(),
    stopped=frozenset(),
    last_segment=20,
    recovery_point=60,
    high_watermark=60,
    has_gaps=False,
)


def kinds(found: Sequence[Finding]) -> list[tuple[str, int | None]]:
    return [(each.kind, each.offset) for each in found]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (SECOND, []),
        (SECOND._replace(first_epoch=1), [(EPOCH_GOES_BACK, 20)]),
        (FIRST._replace(segment=10, first_offset=15, first_epoch=3), [(OFFSETS_GO_BACK, 15)]),
        (SECOND._replace(segment=40, first_offset=40), [(OFFSET_GAP, 40)]),
    ],
)
def test_segments_that_do_not_continue_the_one_before_are_reported(
    second: SegmentRead, found: list[tuple[str, int]]
) -> None:
    log = LOG._replace(segments=(FIRST, second))
    assert kinds([*wrong_over_segments(log)]) == found
    assert [*wrong_over_segments(log._replace(lost_sight=frozenset({second.segment})))] == []


def test_a_log_that_ends_below_its_recovery_point_or_high_watermark_is_reported() -> None:
    assert [*ends_early(LOG)] == []
    short = LOG._replace(segments=(FIRST,), last_segment=0)
    assert kinds([*ends_early(short)]) == [(ENDS_EARLY, 20)]
    assert [*ends_early(short._replace(recovery_point=20, high_watermark=20))] == []


@pytest.mark.parametrize(
    ("checkpoint", "found"),
    [
        (None, []),
        ([EpochStart(0, 0), EpochStart(3, 20)], []),
        ([EpochStart(0, 0), EpochStart(3, 40)], [(CHECKPOINT_CONTRADICTS, 20)]),
        ([EpochStart(3, 20), EpochStart(0, 30)], [(CHECKPOINT_CONTRADICTS, None)]),
        ("it cannot be read", [(CHECKPOINT_CONTRADICTS, None)]),
    ],
)
def test_a_leader_epoch_checkpoint_that_contradicts_the_batches_is_reported(
    checkpoint: list[EpochStart] | str | None, found: list[tuple[str, int | None]]
) -> None:
    batches = [EpochBatch(0, 0, 0, 0), EpochBatch(3, 20, 20, 0)]
    assert kinds([*wrong_checkpoint(LOG, checkpoint, batches)]) == found


def test_an_unreadable_leader_epoch_checkpoint_gives_the_reason(tmp_path: Path) -> None:
    assert leader_epochs(str(tmp_path)) is None
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    assert "the file cannot be read: " in str(leader_epochs(str(tmp_path)))


def test_a_replica_with_another_topic_id_is_reported_and_not_compared() -> None:
    other = LOG._replace(place=LOG.place._replace(broker=3), topic_id="b")
    same, found = comparable([LOG, LOG, other])
    assert (same, kinds(found)) == ([LOG, LOG], [(REPLICAS_DIFFER, None)])


def test_replicas_are_compared_from_the_latest_start_to_each_ones_high_watermark() -> None:
    behind = LOG._replace(segments=(FIRST, SECOND._replace(end_offset=45)), high_watermark=45)
    after_retention = LOG._replace(segments=(SECOND,))
    spans = comparison_spans([LOG, behind, after_retention], 10)
    assert [(since, until) for *_, since, until, _ in spans] == [(20, 60), (20, 45), (20, 60)]
    assert [since for *_, since, _, _ in comparison_spans([LOG, behind], 30)] == [30, 30]
    assert comparison_spans([LOG], 0) == []
