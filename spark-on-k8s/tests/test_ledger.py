"""The ledger of an archive: what counts, and what a writer that ends early leaves. No Spark runs here."""

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
    """The files of an archive that are read from now on, by their paths in it."""
    found, read = list[str](), LocalFolder.read

    def noted(folder: LocalFolder, name: str) -> bytes | None:
        found.append(name)
        return read(folder, name)

    patch.setattr(LocalFolder, "read", noted)
    return found


def test_what_the_log_has_beyond_the_archive_is_pending() -> None:
    log = {0: Bounds(0, 10), 1: Bounds(5, 9), 2: Bounds(3, 3), 3: Bounds(7, 7)}
    assert pending({0: 4, 2: 3}, log) == [OffsetRange(0, 4, 10), OffsetRange(1, 5, 9), OffsetRange(3, 7, 7)]
    assert pending({0: 10, 1: 9, 2: 3}, log) == []


def test_only_what_was_deleted_after_the_archived_offset_is_gone() -> None:
    assert gone({0: 4, 1: 7}, {0: Bounds(6, 9), 1: Bounds(7, 9)}) == [OffsetRange(0, 4, 6)]
    assert gone({}, {0: Bounds(6, 9)}) == []


def test_an_archive_is_behind_by_what_the_log_still_has_beyond_it() -> None:
    """Offsets that a run has read on over hold no records."""
    log = {0: Bounds(0, 10), 1: Bounds(5, 9), 2: Bounds(3, 3)}
    assert offsets_behind([{0: 4, 1: 2}, {}], log) == 6 + 4
    assert offsets_behind([{0: 4, 1: 9}, {0: 10}], log) == 0


def test_a_partition_that_was_added_began_at_offset_0() -> None:
    assert gone({0: 4}, {0: Bounds(4, 9), 1: Bounds(5, 9)}) == [OffsetRange(1, 0, 5)]


def test_a_log_that_is_shorter_than_its_archive_is_refused() -> None:
    with pytest.raises(JobFailed, match="flights-0 ends at offset 3, but the archive ends at offset 4"):
        check_log_holds("flights", {0: 4}, {0: Bounds(0, 3)})
    with pytest.raises(JobFailed, match="flights-1 is not there"):
        check_log_holds("flights", {1: 4}, {0: Bounds(0, 3)})


def test_every_partition_moves_on_with_each_commit() -> None:
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


def test_what_was_lost_is_no_gap_and_another_topic_id_begins_anew() -> None:
    ledger = checked([entry(0, 0, 5), entry(1, 7, 9, [LostRange(0, 5, 7)]), entry(2, 0, 3, topic_id="two")], "/archive")
    assert ledger.generation("flights", "one").ends() == {0: 9}
    assert ledger.generation("flights", "two").ends() == {0: 3}
    assert ledger.topic_ids() == ["one", "two"]


def test_an_entry_counts_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever file operation of a commit is the last one before the process dies."""
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
    raise AssertionError("a commit has so many steps?")


def test_the_same_number_is_never_committed_twice(tmp_path: Path) -> None:
    """As where a file system does not have locks: two writers that know nothing of each other."""
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


def test_an_old_archive_is_read_by_packs_of_its_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit a minute makes half a million ledger files in a year: each is a question to a bucket."""
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
def test_a_damaged_pack_can_be_removed_whichever_it_is(
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


def test_a_commit_counts_though_its_pack_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run makes it."""
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


def test_no_pack_is_made_of_a_ledger_file_that_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that is put back would not be read."""
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
    """The files that a look at the ledger reads."""
    with monkeypatch.context() as patch:
        found = noted_reads(patch)
        folder.ledger()
    return found


def written(folder: ArchiveFolder, of: Entry) -> None:
    """Its data files."""
    for file in of.files:
        path = Path(folder.store.url(file.path))
        path.parent.mkdir(parents=True)
        path.write_bytes(b"data")


def test_a_commit_whose_answer_nfs_lost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is made, and the kernel, which asks a second time, is told that it is there."""
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


def test_a_file_system_without_hard_links_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(source), None, str(target))

    monkeypatch.setattr(os, "link", link)
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with (
        pytest.raises(JobFailed, match="Operation not permitted; an archive needs a file system with hard links"),
        folder.written_by_us(),
    ):
        raise AssertionError("the writer may begin")
    assert os.listdir(tmp_path / "ledger") == []


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = ArchiveFolder(LocalFolder(str(tmp_path)))
    with folder.written_by_us():
        folder.commit(msgspec.structs.replace(entry(0, 0, 5), files=[]))
    assert len(folder.ledger().entries) == 1


def test_a_full_disk_is_told_wherever_it_is_met(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1) as disk:
        folder = ArchiveFolder(LocalFolder(str(disk / "archive")))
        with folder.written_by_us():
            filling = fill(disk)
            with pytest.raises(JobFailed, match="the disk is full: free some space, and run the job again"):
                folder.commit(msgspec.structs.replace(entry(0, 0, 5), files=[]))
            assert folder.ledger().entries == ()
            filling.unlink()
            folder.commit(msgspec.structs.replace(entry(0, 0, 5), files=[]))


def test_the_folders_that_hold_an_archive_are_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut may take all of it."""
    synced: list[Path] = []
    monkeypatch.setattr(local_folder, "_sync", synced.append)
    with ArchiveFolder(LocalFolder(str(tmp_path / "new" / "archive"))).written_by_us():
        assert {tmp_path, tmp_path / "new", tmp_path / "new" / "archive"} <= set(synced)


def test_leftovers_with_a_number_that_nobody_has_are_fenced_first() -> None:
    ledger = sums_of([entry(0, 0, 5)])
    of_entry, dead, alive = (f"data/topic_id=one/run={run}" for run in RUNS)
    assert leftovers(ledger, [of_entry, "data/raw/2020", dead], "/archive") == Leftovers([dead], fence=False)
    assert leftovers(ledger, [of_entry, dead, alive], "/archive") == Leftovers([dead, alive], fence=True)


def test_what_another_writer_commits_while_an_archive_is_looked_over_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bucket, which has no locks: it commits, and begins its next run, after the first look at a folder."""
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


def test_a_plan_of_a_restore_is_kept_once(tmp_path: Path) -> None:
    """Two runs that both found none, where there are no locks: the second would write all records again."""
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
