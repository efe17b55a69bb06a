"""The ledger of an archive: what counts, and what a writer that ends early leaves. No Spark runs here."""

import os
from pathlib import Path

import msgspec
import pytest

from barnabas_jobs.files import archive_folder
from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import ArchivedRange, DataFile, Entry, LostRange, checked
from barnabas_jobs.planning.ranges import Bounds, OffsetRange, check_log_holds, first_of, gone, pending


def entry(number: int, start: int, end: int, lost: list[LostRange] | None = None, topic_id: str = "one") -> Entry:
    return Entry(
        number=number,
        topic="flights",
        topic_id=topic_id,
        committed_at_ms=0,
        partitions=[ArchivedRange(partition=0, start=start, end=end, records=end - start)],
        files=[DataFile(f"data/topic_id={topic_id}/run={number:08d}-a/part-0.parquet", 4)],
        lost=lost or [],
        topic_partitions=1,
    )


def test_what_the_log_has_beyond_the_archive_is_pending() -> None:
    log = {0: Bounds(0, 10), 1: Bounds(5, 9), 2: Bounds(3, 3)}
    assert pending({0: 4}, log) == [OffsetRange(0, 4, 10), OffsetRange(1, 5, 9)]


def test_only_what_was_deleted_after_the_archived_offset_is_gone() -> None:
    assert gone({0: 4, 1: 7}, {0: Bounds(6, 9), 1: Bounds(7, 9), 2: Bounds(5, 9)}) == [OffsetRange(0, 4, 6)]


def test_a_log_that_is_shorter_than_its_archive_is_refused() -> None:
    with pytest.raises(JobFailed, match="flights-0 ends at offset 3, but the archive holds it up to offset 4"):
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
        ([entry(0, 0, 5), entry(2, 5, 9)], "ledger entry 1 has number 2, format 1"),
        (
            [entry(0, 0, 5), entry(1, 6, 9)],
            "ledger entry 1 has partition 0 from offset 6 to 9, after an entry that ends at 5",
        ),
        (
            [entry(0, 0, 5), entry(1, 4, 9)],
            "ledger entry 1 has partition 0 from offset 4 to 9, after an entry that ends at 5",
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
        folder = ArchiveFolder(str(tmp_path / str(allowed)))
        with folder.written_by_us():
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
    one, other = ArchiveFolder(str(tmp_path)), ArchiveFolder(str(tmp_path))
    with one.written_by_us():
        one.commit(entry(0, 0, 5))
        with pytest.raises(JobFailed, match="another writer has committed ledger entry 0 meanwhile"):
            other.commit(entry(0, 0, 9))
    assert one.ledger().entries == (entry(0, 0, 5),)
    assert os.listdir(tmp_path / "ledger") == ["00000000.json"]


def test_a_ledger_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    folder = ArchiveFolder(str(tmp_path))
    with folder.written_by_us():
        folder.commit(msgspec.structs.replace(entry(0, 0, 5), format=2))
    with pytest.raises(JobFailed, match="has number 0, format 2; wanted are 0 and 1"):
        folder.ledger()


class Died(BaseException):
    """No handler of the code under test may catch it."""


class dies_after:  # noqa: N801  # It reads as a verb.
    """The process ends with the file operation after so many of them."""

    def __init__(self, patch: pytest.MonkeyPatch, allowed: int) -> None:
        self.left = allowed
        self.happened = False
        for name in ("open", "fsync", "link"):
            patch.setattr(os, name, self._counted(getattr(os, name)))
        patch.setattr(archive_folder, "write_synced", self._counted(archive_folder.write_synced))
        patch.setattr(Path, "unlink", self._counted(Path.unlink))

    def _counted(self, real: object) -> object:
        def call(*arguments: object, **named: object) -> object:
            self.left -= 1
            if self.left < 0:
                self.happened = True
                raise Died
            return real(*arguments, **named)  # type: ignore[operator]

        return call

    def expected(self) -> "dies_after":
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        return kind is Died
