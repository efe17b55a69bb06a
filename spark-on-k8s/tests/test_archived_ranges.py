"""Which offsets are archived next, which are lost, and the folder beside the tables. No Spark runs here."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from barnabas_jobs.files import store
from barnabas_jobs.files.sorted_records import RestoreNotes
from barnabas_jobs.files.store import LocalFolder
from barnabas_jobs.planning.archived import (
    Bounds,
    Head,
    OffsetRange,
    Tail,
    check_log_holds,
    check_tails,
    first_of,
    gone,
    head_of,
    left_over,
    offsets_behind,
    pending,
)
from barnabas_jobs.planning.errors import JobFailed, Refused


def test_offsets_of_the_log_beyond_the_archive_are_pending() -> None:
    log = {0: Bounds(0, 10), 1: Bounds(5, 9), 2: Bounds(3, 3), 3: Bounds(7, 7)}
    assert pending({0: 4, 2: 3}, log) == [OffsetRange(0, 4, 10), OffsetRange(1, 5, 9), OffsetRange(3, 7, 7)]
    assert pending({0: 10, 1: 9, 2: 3}, log) == []


def test_only_offsets_deleted_after_the_archived_offset_are_lost() -> None:
    assert gone({0: 4, 1: 7}, {0: Bounds(6, 9), 1: Bounds(7, 9)}) == [OffsetRange(0, 4, 6)]
    assert gone({}, {0: Bounds(6, 9)}) == []


def test_offsets_behind_counts_the_offsets_that_the_log_still_has_beyond_the_archive() -> None:
    log = {0: Bounds(0, 10), 1: Bounds(5, 9), 2: Bounds(3, 3)}
    assert offsets_behind({0: 4, 1: 2}, log) == 6 + 4


def test_an_added_partition_starts_at_offset_0() -> None:
    assert gone({0: 4}, {0: Bounds(4, 9), 1: Bounds(5, 9)}) == [OffsetRange(1, 0, 5)]


def test_a_log_that_ends_before_its_archive_is_refused() -> None:
    with pytest.raises(JobFailed, match="flights-0 ends at offset 3, but the archive ends at offset 4"):
        check_log_holds("flights", {0: 4}, {0: Bounds(0, 3)})
    with pytest.raises(JobFailed, match="flights-1 is not there"):
        check_log_holds("flights", {1: 4}, {0: Bounds(0, 3)})


@pytest.mark.parametrize("found", [(2, 7), (1, 8)])
def test_a_log_with_another_last_record_than_the_archive_is_refused(found: tuple[int, int]) -> None:
    tails, log = {0: Tail(0, 4, 1, 7), 1: Tail(0, 4)}, {0: Bounds(0, 9), 1: Bounds(0, 9)}
    check_tails("flights", tails, {0: (1, 7), 1: (1, 7)}, log)
    check_tails("flights", tails, {0: (None, 7)}, log)
    check_tails("flights", tails, {}, log)
    with pytest.raises(Refused, match="flights-0 has another record at offset 3 than the archive"):
        check_tails("flights", tails, {0: found}, log)


def test_each_commit_has_a_share_of_every_partition() -> None:
    assert first_of([OffsetRange(0, 0, 900), OffsetRange(1, 50, 51)], 90) == [
        OffsetRange(0, 0, 89),
        OffsetRange(1, 50, 51),
    ]
    assert first_of([OffsetRange(0, 0, 9)], 90) == [OffsetRange(0, 0, 9)]


def test_only_folders_that_might_still_be_committed_or_were_fenced_are_left_over() -> None:
    head = Head(number=3, run="00000003-b", committed_at_ms=0, tails={}, topic_partitions=1)
    folders = ["00000001-a", "00000003-a", "00000003-b", "00000004-a", "raw"]
    assert left_over(head, folders, ["00000003-b"]) == ["00000003-a", "00000004-a"]
    assert left_over(None, ["00000000-a"], []) == ["00000000-a"]


def test_damaged_properties_of_a_snapshot_are_named() -> None:
    with pytest.raises(JobFailed, match=r"table=flights: the properties barnabas\.\* of a snapshot are damaged"):
        head_of({"barnabas.commit": "1", "barnabas.run": "00000001-a"}, "flights")


def test_a_plan_counts_if_nfs_lost_the_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link was made, and the kernel's retry of the request gets the answer that the file exists."""
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    assert LocalFolder(str(tmp_path)).add("plan.json", b"{}")


def test_plans_need_a_file_system_with_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(source), None, str(target))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(JobFailed, match="Operation not permitted; this folder needs a file system with hard links"):
        RestoreNotes(LocalFolder(str(tmp_path)), in_archive=False).check_writable()


def test_a_file_system_without_locks_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    notes = RestoreNotes(LocalFolder(str(tmp_path)), in_archive=True)
    notes.check_writable()
    with notes.restored_by_us("id"):
        notes.keep_plan("restore", "id", b"{}")


def test_the_parent_folders_of_an_archive_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a power cut may remove the whole archive."""
    synced: list[Path] = []
    monkeypatch.setattr(store, "sync", synced.append)
    LocalFolder(str(tmp_path / "new" / "archive")).make("barnabas")
    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "archive"} <= set(synced)


def test_two_runs_of_one_restore_cannot_both_store_a_plan(tmp_path: Path) -> None:
    """Without locks both runs may find no plan; the second one would write all records again."""
    one, other = (RestoreNotes(LocalFolder(str(tmp_path)), in_archive=True) for _ in range(2))
    one.check_writable()
    with one.restored_by_us("id"):
        one.keep_plan("restore", "id", b"one's")
        with pytest.raises(JobFailed, match="another run of the restore name=restore has begun; wait"):
            other.keep_plan("restore", "id", b"other's")
    assert one.plan("restore", "id") == b"one's"
