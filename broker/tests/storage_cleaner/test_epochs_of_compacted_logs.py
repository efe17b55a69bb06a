"""Compaction removes batches that began a leader epoch: no start may take that epoch to begin later than it did.

Where it did, a replica that has other records up to there would be told that they are the leader's.
"""

from pathlib import Path

from compaction_samples import OneCompactedLog

BEGAN, LEFT = 2, 4
"""Where epoch 1 began, and its first batch that compaction leaves."""


def compacted(path: Path) -> OneCompactedLog:
    """Epoch 0 has offsets 0 and 1; of epoch 1 those at 2 and 3 go."""
    one = OneCompactedLog(path)
    for key, epoch in [(b"a", 0), (b"b", 0), (b"c", 1), (b"c", 1), (b"c", 1)]:
        one.append([(key, b"value")], leader_epoch=epoch)
    one.roll()
    assert one.clean()
    assert sorted(one.records()) == [0, 1, LEFT]
    return one


def test_a_crash_that_loses_the_recovery_point_leaves_the_epochs_where_they_began(tmp_path: Path) -> None:
    one = compacted(tmp_path)
    one.crash()
    assert one.log.syncs.was_recovered
    assert [tuple(each) for each in one.log.epochs.entries] == [(0, 0), (1, BEGAN)]


def test_without_their_checkpoint_epochs_begin_where_the_batch_before_ends(tmp_path: Path) -> None:
    one = compacted(tmp_path)
    (one.directory / "leader-epoch-checkpoint").unlink()
    one.crash()
    assert [tuple(each) for each in one.log.epochs.entries] == [(0, 0), (1, BEGAN)]


def test_a_damaged_checkpoint_below_the_recovery_point_is_made_anew_so_too(tmp_path: Path) -> None:
    one = compacted(tmp_path)
    one.log.flush()
    one.logs.checkpoint(lambda _: None)
    (one.directory / "leader-epoch-checkpoint").write_text("damaged")
    one.crash()
    assert one.log.syncs.recovery_point > LEFT
    assert [tuple(each) for each in one.log.epochs.entries] == [(0, 0), (1, BEGAN)]


def test_where_an_epoch_without_batches_began_the_one_before_ends_after_a_crash(tmp_path: Path) -> None:
    """Compaction has removed all of epoch 1: who has other records there is not told that they are of epoch 0."""
    one = OneCompactedLog(tmp_path)
    for key, epoch in [(b"a", 0), (b"b", 0), (b"c", 1), (b"c", 2), (b"d", 2)]:
        one.append([(key, b"value")], leader_epoch=epoch)
    one.roll()
    assert one.clean()
    assert sorted(one.records()) == [0, 1, 3, 4]
    assert one.log.epochs.end_offset_for(0, one.log.log_end_offset) == (0, BEGAN)
    one.crash()
    assert one.log.syncs.was_recovered
    assert one.log.epochs.end_offset_for(0, one.log.log_end_offset) == (0, BEGAN)


def test_what_the_checkpoint_says_of_epochs_that_were_cut_since_does_not_count(tmp_path: Path) -> None:
    """A truncation writes no file: where the batches contradict it, they are right."""
    one = compacted(tmp_path)
    (one.directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 5\n")
    one.crash()
    assert [tuple(each) for each in one.log.epochs.entries] == [(0, 0), (1, LEFT)]


def test_the_first_offset_that_compaction_has_left_is_known_whether_it_was_here_or_in_an_earlier_life(
    tmp_path: Path,
) -> None:
    one = compacted(tmp_path)
    one.append([(b"d", b"value")], leader_epoch=1)
    assert [one.log.first_left_from(offset) for offset in (0, 1, BEGAN, 3, LEFT, 5, 6)] == [
        0,
        1,
        LEFT,
        LEFT,
        LEFT,
        5,
        6,
    ]
    one.log.flush()
    one.logs.checkpoint(lambda _: one.log.log_end_offset)
    one.crash()
    assert [one.log.first_left_from(offset) for offset in (1, BEGAN, LEFT, 6)] == [1, LEFT, LEFT, 6]
