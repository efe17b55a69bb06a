"""A leader epoch does not start later after a restart if compaction has removed its first batches.

With a later start a replica that has other records in the gap would take them for the leader's.
"""

from pathlib import Path

from compaction_samples import OneCompactedLog

BEGAN, LEFT = 2, 4
"""The start of epoch 1, and its first batch that compaction leaves."""


def compacted(path: Path) -> OneCompactedLog:
    """Return a compacted log: epoch 0 has the offsets 0 and 1, and epoch 1 has lost those at 2 and 3."""
    one = OneCompactedLog(path)
    for key, epoch in [(b"a", 0), (b"b", 0), (b"c", 1), (b"c", 1), (b"c", 1)]:
        one.append([(key, b"value")], leader_epoch=epoch)
    one.roll()
    assert one.clean()
    assert sorted(one.records()) == [0, 1, LEFT]
    return one


def test_leader_epochs_keep_their_start_after_a_crash_that_loses_the_recovery_point(tmp_path: Path) -> None:
    one = compacted(tmp_path)
    one.crash()
    assert one.log.syncs.was_recovered
    assert [tuple(each) for each in one.log.epochs.entries] == [(0, 0), (1, BEGAN)]


def test_a_leader_epoch_without_a_checkpoint_starts_at_the_end_of_the_batch_before(tmp_path: Path) -> None:
    one = compacted(tmp_path)
    (one.directory / "leader-epoch-checkpoint").unlink()
    one.crash()
    assert [tuple(each) for each in one.log.epochs.entries] == [(0, 0), (1, BEGAN)]


def test_a_damaged_epoch_checkpoint_is_rebuilt_also_below_the_recovery_point(tmp_path: Path) -> None:
    one = compacted(tmp_path)
    one.log.flush()
    one.logs.checkpoint(lambda _: None)
    (one.directory / "leader-epoch-checkpoint").write_text("damaged")
    one.crash()
    assert one.log.syncs.recovery_point > LEFT
    assert [tuple(each) for each in one.log.epochs.entries] == [(0, 0), (1, BEGAN)]


def test_an_epoch_ends_at_the_start_of_a_next_one_without_batches_after_a_crash(tmp_path: Path) -> None:
    """Compaction has removed all of epoch 1: a replica with other records there must not take them for epoch 0's."""
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


def test_the_batches_override_an_epoch_checkpoint_from_before_a_truncation(tmp_path: Path) -> None:
    """A truncation writes no file: if the batches contradict the checkpoint, they are right."""
    one = compacted(tmp_path)
    (one.directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 5\n")
    one.crash()
    assert [tuple(each) for each in one.log.epochs.entries] == [(0, 0), (1, LEFT)]


def test_the_first_offset_that_compaction_has_left_is_known_before_and_after_a_restart(
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
