"""The ledger of an archive: which entries count, and what a writer that dies leaves behind. No Spark runs here."""

import errno
import fcntl
import os
from pathlib import Path

import msgspec
import pytest
from dying import dies_after

from barnabas_jobs.files import archive_folder, local_folder
from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.files.local_folder import LocalFolder
from barnabas_jobs.files.restore_notes import RestoreNotes
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import (
    ArchivedRange,
    DataFile,
    Entry,
    Leftovers,
    LostRange,
    checked,
    leftovers,
    sums_of,
)
from barnabas_jobs.planning.ranges import Bounds, OffsetRange, check_log_holds, first_of, gone, offsets_behind, pending
from harness.mounts import fill, small_disk

RUNS = ("00000000-0123456789ab", "00000000-000000000000", "00000001-0123456789ab")


def entry(number: int, start: int, end: int, lost: list[LostRange] | None = None, topic_id: str = "one") -> Entry:
    return Entry(
        number=number,
        topic="flights",
        topic_id=topic_id,
        committed_at_ms=0,
        partitions=[ArchivedRange(partition=0, start=start, end=end, records=end - start)],
        files=[DataFile(f"data/topic_id={topic_id}/run={number:08d}-0123456789ab/part-0.parquet", 4)],
        lost=lost or [],
        topic_partitions=1,
    )


def noted_reads(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the path of each archive file that is read from now on."""
    found, read = list[str](), LocalFolder.read

    def noted(folder: LocalFolder, name: str) -> bytes | None:
        found.append(name)
        return read(folder, name)

    patch.setattr(LocalFolder, "read", noted)
    return found


def test_offsets_of_the_log_beyond_the_archive_are_pending() -> None:
    log = {0: Bounds(0, 10), 1: Bounds(5, 9), 2: Bounds(3, 3), 3: Bounds(7, 7)}
    assert pending({0: 4, 2: 3}, log) == [OffsetRange(0, 4, 10), OffsetRange(1, 5, 9), OffsetRange(3, 7, 7)]
    assert pending({0: 10, 1: 9, 2: 3}, log) == []


def test_only_offsets_deleted_after_the_archived_offset_are_lost() -> None:
    assert gone({0: 4, 1: 7}, {0: Bounds(6, 9), 1: Bounds(7, 9)}) == [OffsetRange(0, 4, 6)]
    assert gone({}, {0: Bounds(6, 9)}) == []


def test_offsets_behind_counts_the_offsets_that_the_log_still_has_beyond_the_archive() -> None:
    """Offsets that a run has read beyond the archive hold no records."""
    log = {0: Bounds(0, 10), 1: Bounds(5, 9), 2: Bounds(3, 3)}
    assert offsets_behind([{0: 4, 1: 2}, {}], log) == 6 + 4
    assert offsets_behind([{0: 4, 1: 9}, {0: 10}], log) == 0


def test_an_added_partition_starts_at_offset_0() -> None:
    assert gone({0: 4}, {0: Bounds(4, 9), 1: Bounds(5, 9)}) == [OffsetRange(1, 0, 5)]


def test_a_log_that_ends_before_its_archive_is_refused() -> None:
    with pytest.raises(JobFailed, match="flights-0 ends at offset 3, but the archive ends at offset 4"):
        check_log_holds("flights", {0: 4}, {0: Bounds(0, 3)})
    with pytest.raises(JobFailed, match="flights-1 is not there"):
        check_log_holds("flights", {1: 4}, {0: Bounds(0, 3)})


def test_each_commit_has_a_share_of_every_partition() -> None:
    assert first_of([OffsetRange(0, 0, 900), OffsetRange(1, 50, 51)], 90) == [
        OffsetRange(0, 0, 89),
        OffsetRange(1, 50, 51),
    ]
    assert first_of([OffsetRange(0, 0, 9)], 90) == [OffsetRange(0, 0, 9)]


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([entry(0, 0, 5), entry(2, 5, 9)], "ledger entry 1 has the entry number 2 and the format version 1"),
        (
            [entry(0, 0, 5), entry(1, 6, 9)],
            "ledger entry 1 has partition 0 from offset 6 to 9, but the previous entry ends at offset 5",
        ),
        (
            [entry(0, 0, 5), entry(1, 4, 9)],
            "ledger entry 1 has partition 0 from offset 4 to 9, but the previous entry ends at offset 5",
        ),
    ],
)
def test_a_ledger_with_a_gap_or_an_overlap_is_refused(entries: list[Entry], told: str) -> None:
    with pytest.raises(JobFailed, match=told):
        checked(entries, "/archive")


def test_lost_ranges_are_no_gap_and_another_topic_id_starts_at_offset_0() -> None:
    ledger = checked([entry(0, 0, 5), entry(1, 7, 9, [LostRange(0, 5, 7)]), entry(2, 0, 3, topic_id="two")], "/archive")
    assert ledger.generation("flights", "one").ends() == {0: 9}
    assert ledger.generation("flights", "two").ends() == {0: 3}
    assert ledger.topic_ids() == ["one", "two"]


def test_an_interrupted_commit_counts_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may die after any file operation of the commit."""
    for allowed in range(20):
        folder = ArchiveFolder(LocalFolder(str(tmp_path / str(allowed))))
        with folder.written_by_us():
            written(folder, entry(0, 0, 5))
            written(folder, entry(1, 5, 9))
            folder.commit(entry(0, 0, 5))
            with monkeypatch.context() as patch:
                died = dies_after(patch, allowed)
                with died.expected():
                    folder.commit(entry(1, 5, 9))
        entries = folder.ledger().entries
        assert entries in ((entry(0, 0, 5),), (entry(0, 0, 5), entry(1, 5, 9)))
        if not died.happened:
            assert len(entries) == 2
            assert allowed > 3
            return
    raise AssertionError("a commit has 20 or more file operations")


def test_a_ledger_number_is_committed_only_once_by_two_writers_without_locks(tmp_path: Path) -> None:
    """On a file system without locks, two writers do not know of each other."""
    one, other = ArchiveFolder(LocalFolder(str(tmp_path))), ArchiveFolder(LocalFolder(str(tmp_path)))
    with one.written_by_us():
        written(one, entry(0, 0, 5))
        one.commit(entry(0, 0, 5))
        with pytest.raises(JobFailed, match="another writer has already committed the ledger entry 0"):
            other.commit(entry(0, 0, 9))
    assert one.ledger().entries == (entry(0, 0, 5),)
    assert os.listdir(tmp_path / "ledger") == ["00000000.json"]


def test_a_ledger_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with folder.written_by_us():
        written(folder, entry(0, 0, 5))
        folder.commit(msgspec.structs.replace(entry(0, 0, 5), format=2))
    with pytest.raises(JobFailed, match="format version 2, but must have the entry number 0 and the format version 1"):
        folder.ledger()


def test_an_old_archive_is_read_from_packs_of_ledger_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit each minute makes half a million ledger files in a year, and each costs a request to a bucket."""
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with folder.written_by_us():
        for number in range(1999):
            of = msgspec.structs.replace(entry(number, number, number + 1), files=[])
            (tmp_path / "ledger" / f"{number:08d}.json").write_bytes(msgspec.json.encode(of))
        folder.sweep([], 1999)
        assert names_read(monkeypatch, folder) == ["packs/00000000.json"] + [
            f"ledger/{number:08d}.json" for number in range(1000, 1999)
        ]
        folder.commit(msgspec.structs.replace(entry(1999, 1999, 2000), files=[]))
        folder.commit(msgspec.structs.replace(entry(2000, 2000, 2001), files=[]))
    assert names_read(monkeypatch, folder) == ["packs/00000000.json", "packs/00001000.json", "ledger/00002000.json"]
    assert folder.ledger().generation("flights", "one").ends() == {0: 2001}
    assert [each.number for each in folder.ledger().entries] == list(range(2001))


@pytest.mark.parametrize("lacking", [0, 10, 20])
def test_any_damaged_pack_can_be_removed_and_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int
) -> None:
    monkeypatch.setattr(archive_folder, "PACKED", 10)
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    pack = tmp_path / "packs" / f"{lacking:08d}.json"
    with folder.written_by_us():
        for number in range(35):
            folder.commit(msgspec.structs.replace(entry(number, number, number + 1), files=[]))
        pack.write_bytes(b"[{")
        with pytest.raises(JobFailed, match=rf"packs/{pack.name} cannot be read: .*; remove the file"):
            folder.ledger()
        pack.unlink()
        whole = folder.ledger()
        assert [each.number for each in whole.entries] == list(range(35))
        folder.sweep([], 35)
        assert len(names_read(monkeypatch, folder)) == 3 + 5
    assert folder.ledger() == whole


def test_a_commit_counts_even_if_its_pack_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run writes the pack."""
    monkeypatch.setattr(archive_folder, "PACKED", 10)
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with folder.written_by_us():
        (tmp_path / "packs").rmdir()
        for number in range(11):
            folder.commit(msgspec.structs.replace(entry(number, number, number + 1), files=[]))
    assert len(folder.ledger().entries) == 11
    with folder.written_by_us():
        folder.sweep([], 11)
    assert names_read(monkeypatch, folder) == ["packs/00000000.json", "ledger/00000010.json"]


def test_an_empty_ledger_file_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were packed, a ledger file restored from a backup would not be read."""
    monkeypatch.setattr(archive_folder, "PACKED", 10)
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with folder.written_by_us():
        for number in range(9):
            folder.commit(msgspec.structs.replace(entry(number, number, number + 1), files=[]))
        damaged = tmp_path / "ledger" / "00000004.json"
        content = damaged.read_bytes()
        damaged.write_bytes(b"")
        folder.commit(msgspec.structs.replace(entry(9, 9, 10), files=[]))
        with pytest.raises(JobFailed, match=r"ledger/00000004.json cannot be read"):
            folder.ledger()
        damaged.write_bytes(content)
        assert len(folder.ledger().entries) == 10


def names_read(monkeypatch: pytest.MonkeyPatch, folder: ArchiveFolder) -> list[str]:
    """Return the files that are read with the ledger."""
    with monkeypatch.context() as patch:
        found = noted_reads(patch)
        folder.ledger()
    return found


def written(folder: ArchiveFolder, of: Entry) -> None:
    """Write the data files of an entry."""
    for file in of.files:
        path = Path(folder.store.url(file.path))
        path.parent.mkdir(parents=True)
        path.write_bytes(b"data")


def test_a_commit_counts_if_nfs_lost_the_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link was made, and the kernel's retry of the request gets the answer that the file exists."""
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with folder.written_by_us():
        monkeypatch.setattr(os, "link", link)
        written(folder, entry(0, 0, 5))
        folder.commit(entry(0, 0, 5))
    assert folder.ledger().entries == (entry(0, 0, 5),)


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(source), None, str(target))

    monkeypatch.setattr(os, "link", link)
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with (
        pytest.raises(JobFailed, match="Operation not permitted; an archive needs a file system with hard links"),
        folder.written_by_us(),
    ):
        raise AssertionError("the writer was not refused")
    assert os.listdir(tmp_path / "ledger") == []


def test_a_file_system_without_locks_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with folder.written_by_us():
        folder.commit(msgspec.structs.replace(entry(0, 0, 5), files=[]))
    assert len(folder.ledger().entries) == 1


def test_a_commit_on_a_full_disk_fails_and_succeeds_once_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1) as disk:
        folder = ArchiveFolder(LocalFolder(str(disk / "archive")))
        with folder.written_by_us():
            filling = fill(disk)
            with pytest.raises(JobFailed, match="the disk is full: free some space, and run the job again"):
                folder.commit(msgspec.structs.replace(entry(0, 0, 5), files=[]))
            assert folder.ledger().entries == ()
            filling.unlink()
            folder.commit(msgspec.structs.replace(entry(0, 0, 5), files=[]))


def test_the_parent_folders_of_an_archive_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a power cut may remove the whole archive."""
    synced: list[Path] = []
    monkeypatch.setattr(local_folder, "_sync", synced.append)
    with ArchiveFolder(LocalFolder(str(tmp_path / "new" / "archive"))).written_by_us():
        assert {tmp_path, tmp_path / "new", tmp_path / "new" / "archive"} <= set(synced)


def test_leftovers_of_uncommitted_ledger_numbers_need_a_fence() -> None:
    ledger = sums_of([entry(0, 0, 5)])
    of_entry, dead, alive = (f"data/topic_id=one/run={run}" for run in RUNS)
    assert leftovers(ledger, [of_entry, "data/raw/2020", dead], "/archive") == Leftovers([dead], fence=False)
    assert leftovers(ledger, [of_entry, dead, alive], "/archive") == Leftovers([dead, alive], fence=True)


def test_an_entry_committed_by_another_writer_during_the_survey_is_not_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket has no locks: the other writer commits and begins its next run after the first listing of a folder."""
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    names = folder.store.names
    with folder.written_by_us():
        written(folder, entry(0, 0, 5))
        folder.commit(entry(0, 0, 5))
        written(folder, entry(1, 5, 9))

        def commits_after(looked_at: str) -> list[str]:
            found = names(looked_at)
            monkeypatch.setattr(folder.store, "names", names)
            folder.commit(entry(1, 5, 9))
            written(folder, entry(2, 9, 12))
            return found

        monkeypatch.setattr(folder.store, "names", commits_after)
        ledger, left = folder.survey()
    assert len(ledger.entries) == 2
    assert left == Leftovers([f"data/topic_id=one/run={2:08d}-0123456789ab"], fence=True)


def test_two_runs_of_one_restore_cannot_both_store_a_plan(tmp_path: Path) -> None:
    """Without locks both runs may find no plan; the second one would write all records again."""
    one, other = (RestoreNotes(LocalFolder(str(tmp_path)), in_archive=True) for _ in range(2))
    one.check_writable()
    with one.restored_by_us("id"):
        one.keep_plan("restore", "id", b"one's")
        with pytest.raises(JobFailed, match="another run of the restore name=restore has begun; wait"):
            other.keep_plan("restore", "id", b"other's")
    assert one.plan("restore", "id") == b"one's"


def test_leftovers_beyond_the_ledger_show_that_it_lost_entries() -> None:
    with pytest.raises(JobFailed, match="the ledger ends before entry 0: the ledger files of the last"):
        leftovers(sums_of([]), ["data/topic_id=one/run=00000001-0123456789ab"], "/archive")
