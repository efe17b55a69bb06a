"""Archives with very many commits. No Spark runs here."""

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from barnabas_jobs.files.archive_folder import PACKED, ArchiveFolder
from barnabas_jobs.files.local_folder import LocalFolder
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import ArchivedRange, DataFile, Entry, LostRange, sums_of

PARTITIONS = range(10)


def entry(number: int, topic_id: str = "one", lost: list[LostRange] | None = None) -> Entry:
    """Return an entry with one record and one file for each partition."""
    run = f"data/topic_id={topic_id}/run={number:08d}-0123456789ab"
    return Entry(
        number=number,
        topic="flights",
        topic_id=topic_id,
        committed_at_ms=0,
        partitions=[ArchivedRange(partition=each, start=number, end=number + 1, records=1) for each in PARTITIONS],
        files=[DataFile(f"{run}/partition={each}/part.parquet", 4) for each in PARTITIONS],
        lost=lost or [],
        topic_partitions=len(PARTITIONS),
    )


def with_packs(path: Path, packs: int) -> ArchiveFolder:
    """Make an archive that has only this many packs."""
    (path / "packs").mkdir(parents=True)
    for first in range(0, packs * PACKED, PACKED):
        content = msgspec.json.encode([entry(number) for number in range(first, first + PACKED)])
        (path / "packs" / f"{first:08d}.json").write_bytes(content)
    return ArchiveFolder(LocalFolder(str(path)))


def peak_bytes(folder: ArchiveFolder, entries: int) -> int:
    """Return the peak memory of a survey of the archive, as a run makes it before it continues the archive."""
    tracemalloc.start()
    try:
        sums, left = folder.survey_sums()
        assert (sums.count, sums.records("one"), left.fence) == (entries, 10 * entries, False)
        assert sums.ends("one") == dict.fromkeys(PARTITIONS, entries)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_survey_of_an_old_archive_does_not_hold_all_entries_in_memory(tmp_path: Path) -> None:
    """A commit each minute makes half a million entries in a year, which took gigabytes."""
    young, old = (peak_bytes(with_packs(tmp_path / str(packs), packs), packs * PACKED) for packs in (2, 6))
    assert old < 1.5 * young


def test_sums_are_kept_apart_for_each_topic_id() -> None:
    entries = [entry(0), entry(1, lost=[LostRange(10, 0, 7)]), entry(2, "two")]
    sums = sums_of(entries)
    assert (sums.count, sums.topic) == (3, "flights")
    assert sums.runs == {each.run for each in entries}
    assert (sums.records("one"), sums.records("two"), sums.records("three")) == (20, 10, 0)
    assert sums.ends("one") == {**dict.fromkeys(PARTITIONS, 2), 10: 7}
    assert sums.ends("two") == dict.fromkeys(PARTITIONS, 3)
    assert sums.ends("three") == {}
    sums.ends("one")[0] = 9
    assert sums.ends("one")[0] == 2


def test_a_gap_in_the_ledger_is_found_by_the_survey_too(tmp_path: Path) -> None:
    folder = with_packs(tmp_path, 2)
    (tmp_path / "packs" / "00000000.json").unlink()
    with pytest.raises(
        JobFailed, match="ledger entry 0 has the entry number 1000 and the format version 1, but must have"
    ):
        folder.survey_sums()
