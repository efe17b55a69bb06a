"""The job `compact` joins small files; no record is lost or duplicated, even if the run dies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dying import dies_after
from jobs_world import QUIET_S, World
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.files.local_folder import LocalFolder
from barnabas_jobs.jobs import compact, restore
from barnabas_jobs.planning.compaction import KEEP_MS, groups_to_join, records_of
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import ArchivedRange, DataFile, Entry, Generation, checked

NOTHING: Any = None
COMMITS, RECORDS = 6, 10


def entry(number: int, topic_id: str = "one", **changes: Any) -> Entry:
    """Return an entry with ten records."""
    start = number * RECORDS
    made = Entry(
        number=number,
        topic="flights",
        topic_id=topic_id,
        committed_at_ms=0,
        partitions=[ArchivedRange(partition=0, start=start, end=start + RECORDS, records=RECORDS)],
        files=[DataFile(f"data/topic_id={topic_id}/run={number:08d}-0123456789ab/date=d/part-0.parquet", 4)],
        topic_partitions=1,
    )
    return msgspec.structs.replace(made, **changes)


def joining(number: int, joins: tuple[int, int]) -> Entry:
    return entry(number, partitions=[], joins=joins, format=2)


def test_adjacent_commits_of_one_schema_are_joined_up_to_a_limit() -> None:
    entries = tuple(entry(number, schema="a INT" if number == 4 else None) for number in range(8))
    groups = groups_to_join(Generation("flights", "one", entries), 30)
    assert [[each.number for each in group] for group in groups] == [[0, 1, 2], [5, 6, 7]]


def test_a_joined_commit_is_joined_again_with_the_commits_after_it() -> None:
    entries = (*(entry(number) for number in range(3)), joining(3, (0, 3)), entry(4), entry(5))
    generation = Generation("flights", "one", entries)
    (group,) = groups_to_join(generation, 100)
    assert [each.number for each in group] == [3, 4, 5]
    assert records_of(generation, group) == {0: 50}
    whole = Generation("flights", "one", (*entries, joining(6, (3, 6))))
    assert [file.path for file in whole.files] == [entry(6).files[0].path]
    assert groups_to_join(whole, 100) == []


def test_a_restore_plan_made_before_a_join_reads_the_joined_files() -> None:
    ledger = checked([*(entry(number) for number in range(4)), joining(4, (0, 4)), joining(5, (4, 5))], "/archive")
    before = ledger.first(2).generation("flights", "one")
    assert [file.path for file in before.files] == [entry(5).files[0].path]
    assert (before.records, before.ends()) == (20, {0: 20})


def test_a_joined_entry_needs_the_newer_ledger_format() -> None:
    """An older version of the jobs would read the records of such an entry twice."""
    with pytest.raises(JobFailed, match="format version 1, but must have the entry number 1 and the format version 2"):
        checked([entry(0), entry(1, partitions=[], joins=(0, 1))], "/archive")


def test_compact_loses_and_duplicates_no_record_if_it_dies_at_any_file_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files have their records as text; a run one day later removes the replaced files."""
    monkeypatch.setattr(compact, "write_joined", joined_as_text)
    steps = 0
    for allowed in range(200):
        folder = archive_of_text(tmp_path / str(allowed))
        options = compact.Options(topic="flights", archive=str(folder.store))
        with monkeypatch.context() as patch:
            died = dies_after(patch, allowed)
            with died.expected():
                compact.run(NOTHING, options, lambda: 1.0)
        assert text_of(folder) == list(range(COMMITS * RECORDS))
        compact.run(NOTHING, options, lambda: 2.0)
        compact.run(NOTHING, options, lambda: 2.0 + KEEP_MS / 1000)
        assert text_of(folder) == list(range(COMMITS * RECORDS))
        assert len(list(Path(folder.data).glob("*/*"))) == 1
        if not died.happened:
            steps = allowed
            break
    assert steps > 10


def archive_of_text(path: Path) -> ArchiveFolder:
    folder = ArchiveFolder(LocalFolder(str(path)))
    with folder.written_by_us():
        for number in range(COMMITS):
            text = " ".join(str(record) for record in range(number * RECORDS, (number + 1) * RECORDS))
            run = folder.new_run("one", number)
            file = Path(folder.store.url(run)) / "date=d/part-0.parquet"
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
            folder.commit(entry(number, files=folder.synced(run)))
    return folder


def joined_as_text(job: compact.Compaction, files: Sequence[DataFile], run_folder: str, records: int) -> dict[int, int]:
    texts = [Path(job.folder.store.url(file.path)).read_text(encoding="utf-8") for file in files]
    file = Path(job.folder.store.url(run_folder)) / "date=d/part-0.parquet"
    file.parent.mkdir(parents=True)
    file.write_text(" ".join(texts), encoding="utf-8")
    return {0: records}


def text_of(folder: ArchiveFolder) -> list[int]:
    """Return the records that a reader finds."""
    paths = folder.paths(folder.ledger().chosen(None))
    return [int(word) for path in paths for word in Path(path).read_text(encoding="utf-8").split()]


@pytest.mark.slow
def test_a_compacted_archive_is_read_restored_and_continued_as_before(spark: SparkSession, world: World) -> None:
    world.make()
    for _ in range(2):
        world.write(9)
        world.archive(spark)
    before = world.archived(spark)
    options = compact.Options(topic=world.topic, archive=world.location)
    first = compact.run(spark, options, lambda: 1.0)
    assert (first.joined_commits, first.commits, first.removed_runs) == (2, 1, 0)
    assert first.files_after < first.files_before
    assert world.archived(spark) == before == world.read()
    world.write(9)
    assert world.archive(spark).archived_records == 27
    again = compact.run(spark, options, lambda: 1.0 + KEEP_MS / 1000)
    assert (again.joined_commits, again.commits, again.removed_runs) == (2, 1, 2)
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine
    chosen: dict[str, Any] = {"bootstrap": world.bootstrap, "topic": world.topic, "archive": world.location}
    into = f"{world.topic}-into"
    restore.run(spark, restore.Options(**chosen, into=into, create=True), quiet_s=QUIET_S)
    assert world.read(into) == world.read()
