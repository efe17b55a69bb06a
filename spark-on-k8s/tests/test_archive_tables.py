"""The tables of an archive in a real catalog: conditional commits, fences, unknown outcomes, the table of ranges."""

import sqlite3
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dying import dies_after
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table
from pyiceberg.table.update import update_table_metadata
from sqlalchemy import event
from sqlalchemy.schema import CreateTable

from barnabas_jobs.files import table_writer
from barnabas_jobs.files.archive_tables import CATALOG_FILE, ArchivedTopic, ArchiveTables, data_files
from barnabas_jobs.files.store import LocalFolder
from barnabas_jobs.files.table_writer import OtherRun, TableWriter, begin
from barnabas_jobs.jobs.compact import files_to_join, join_rows, remove_unnamed, replace
from barnabas_jobs.planning.archived import Commit, GroupOffset, Identity, OffsetRange, PartitionRange, Tail
from barnabas_jobs.planning.errors import JobFailed, Refused
from harness.mounts import fill, small_disk
from harness.soak import size

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # Polars then plans with pyiceberg.
FLIGHTS = Identity("flights", "id-1", "cluster-1")
AGAIN = Identity("flights", "id-2", "cluster-1")
DAY_US = 86_400_000_000
FIRST_US = 1_357_000_000_000_000
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SPARK = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", HEADER))),
    ]
)


def tables_at(folder: Path) -> ArchiveTables:
    return ArchiveTables(str(folder), {}, "barnabas", LocalFolder(str(folder)))


def writer_at(folder: Path, identity: Identity = FLIGHTS, at_s: float = 100.0) -> TableWriter:
    """Begin a run, as `archive` does."""
    writer = begin(tables_at(folder), identity, lambda: at_s)
    writer.recover_rows()
    writer.remove_left_over(writer.run_folders(), 2, {})
    return writer


def test_a_new_catalog_opens_while_another_job_makes_its_tables(tmp_path: Path) -> None:
    """The other job makes each table after this one has seen that the table is missing."""
    made = set[str]()

    def make_first(table: Any, connection: Any, **_: Any) -> None:
        if table.name not in made:
            made.add(table.name)
            with closing(sqlite3.connect(tmp_path / CATALOG_FILE)) as other:
                other.execute(str(CreateTable(table).compile(connection)))

    tables = [IcebergTables.__table__, IcebergNamespaceProperties.__table__]
    for table in tables:
        event.listen(table, "before_create", make_first)
    try:
        assert tables_at(tmp_path).catalog.list_namespaces() == []
    finally:
        for table in tables:
            event.remove(table, "before_create", make_first)
    assert len(made) == len(tables)


def write(writer: TableWriter, run: str, ranges: Sequence[OffsetRange]) -> list[str]:
    """Write a file as Spark does, with a record at each offset, and return its name."""
    rows = [
        {"partition": each.partition, "offset": offset, "timestamp": FIRST_US + offset, "key": b"k", "headers": []}
        for each in ranges
        for offset in range(each.start, each.end)
    ]
    if not rows:
        return []
    store = writer._tables.store
    name = f"{writer.folder(run)}/date=2013-01-01/part-0.parquet"
    path = Path(store.url(name))
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, SPARK), path)
    return [name]


def archive(
    writer: TableWriter,
    *ranges: OffsetRange,
    groups: tuple[GroupOffset, ...] = (),
    files: list[str] | None = None,
) -> Commit:
    """Archive a record at each offset of the ranges, in one commit."""
    run = writer.new_run()
    files = write(writer, run, ranges) if files is None else files
    found = tuple(PartitionRange(*each, 1, 7, each.offsets) for each in ranges)
    commit = Commit(writer.number, run, writer._now_ms(), found, groups)
    writer.commit(commit, files, 2, {"retention.ms": "-1"})
    return commit


def offsets(folder: Path, topic: str = "flights") -> list[tuple[int, int]]:
    """Return partition and offset of all records, as an engine that is not ours reads them."""
    table = tables_at(folder).load(topic)
    assert table is not None
    found = polars.scan_iceberg(table.metadata_location).select("partition", "offset").collect()
    return sorted(found.iter_rows())


def archived(folder: Path) -> ArchivedTopic:
    return tables_at(folder).topic("flights")


def test_another_engine_reads_the_records_of_two_runs(tmp_path: Path) -> None:
    archive(writer_at(tmp_path), OffsetRange(0, 0, 3), OffsetRange(1, 5, 7))
    archive(writer_at(tmp_path), OffsetRange(0, 3, 4))
    assert offsets(tmp_path) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 5), (1, 6)]
    found = archived(tmp_path)
    assert found.ends() == {0: 4, 1: 7}
    assert found.spans() == [OffsetRange(0, 0, 4), OffsetRange(1, 5, 7)]
    assert found.records_by_partition() == {0: 4, 1: 2}
    assert found.records == 6
    assert (found.topic_partitions, found.topic_config) == (2, {"retention.ms": "-1"})
    assert [each.records for each in found.files()] == [1, 5]
    assert found.files()[1][3:] == (0, 1, 0, 6)


def test_a_point_in_time_gives_ends_and_the_offsets_of_groups(tmp_path: Path) -> None:
    archive(writer_at(tmp_path, at_s=100), OffsetRange(0, 0, 3), groups=(GroupOffset("air", 0, 2),))
    archive(writer_at(tmp_path, at_s=200), OffsetRange(0, 3, 9), groups=(GroupOffset("air", 0, 8),))
    found = archived(tmp_path)
    assert [found.commit_number(at_ms) for at_ms in (100_000, 199_999, 200_000, None)] == [0, 0, 1, 1]
    assert [found.ends(number) for number in (0, 1, None)] == [{0: 3}, {0: 9}, {0: 9}]
    assert [found.group_offsets(number)[0].offset for number in (0, 1)] == [2, 8]
    with pytest.raises(Refused, match=r"the first commit of the archive barnabas\.flights is of 1970-01-01T00:01:40"):
        found.commit_number(99_999)
    with pytest.raises(Refused, match="commit=2: flights has no such commit; allowed: 0 to 1"):
        found.ends(commit=2)


def test_of_two_runs_at_once_the_second_commits_nothing(tmp_path: Path) -> None:
    one, other = writer_at(tmp_path), writer_at(tmp_path)
    archive(one, OffsetRange(0, 0, 3))
    with pytest.raises(OtherRun, match="another run has archived this topic"):
        archive(other, OffsetRange(0, 0, 2))
    assert offsets(tmp_path) == [(0, 0), (0, 1), (0, 2)]
    assert writer_at(tmp_path).head == one.head
    assert archived(tmp_path).records_by_partition() == {0: 3}


def test_a_topic_that_was_created_again_gets_a_table_of_its_own(tmp_path: Path) -> None:
    archive(writer_at(tmp_path), OffsetRange(0, 0, 3))
    archive(writer_at(tmp_path, AGAIN), OffsetRange(0, 0, 1))
    archive(writer_at(tmp_path), OffsetRange(0, 3, 4))
    assert offsets(tmp_path, "flights$2") == [(0, 0)]
    assert tables_at(tmp_path).topic("flights").topic_id == "id-2"
    assert tables_at(tmp_path).topic("flights", "id-1").ends() == {0: 4}
    with pytest.raises(Refused, match="topic_id=id-3: the archive has no such id of 'flights'; allowed: id-1, id-2"):
        tables_at(tmp_path).topic("flights", "id-3")


def test_an_archive_that_is_not_there_is_refused_and_no_file_is_made(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no archive of the topic 'flights'; run `archive` first"):
        tables_at(tmp_path / "none").topic("flights")
    assert not (tmp_path / "none").exists()


def test_a_table_that_somebody_else_made_is_refused(tmp_path: Path) -> None:
    tables = tables_at(tmp_path)
    tables.store.make("barnabas")
    tables.catalog.create_namespace("barnabas")
    tables.catalog.create_table(("barnabas", "flights"), SPARK)
    for action in (lambda: writer_at(tmp_path), lambda: tables.topic("flights")):
        with pytest.raises(Refused, match="table=flights: somebody else made this table"):
            action()


def test_a_table_that_lost_a_column_is_refused(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)
    archive(writer, OffsetRange(0, 0, 3))
    with writer.data.update_schema() as update:
        update.delete_column("headers")
    with pytest.raises(Refused, match="table=flights: the column headers is gone; allowed: list<struct"):
        writer_at(tmp_path)


def test_a_bucket_without_a_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="archive=s3a://air/one is in a bucket, so the option catalog is needed"):
        ArchiveTables("s3a://air/one", {}, "barnabas", LocalFolder(str(tmp_path)))


def test_folders_of_an_interrupted_run_are_fenced_and_removed(tmp_path: Path) -> None:
    alive = writer_at(tmp_path)
    archive(alive, OffsetRange(0, 0, 3))
    run = alive.new_run()
    files = write(alive, run, [OffsetRange(0, 3, 5)])
    head = writer_at(tmp_path).head
    assert head is not None
    assert (head.number, head.fence, head.ends) == (1, True, {0: 3})
    assert not (tmp_path / alive.folder(run)).exists()
    with pytest.raises(JobFailed, match="another run has archived"):
        alive.commit(Commit(1, run, 0, (PartitionRange(0, 3, 5, None, None, 2),)), files, 2, {})
    archive(writer_at(tmp_path), OffsetRange(0, 3, 4))
    assert offsets(tmp_path) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert archived(tmp_path).records_by_partition() == {0: 4}


def test_folders_of_committed_runs_stay(tmp_path: Path) -> None:
    archive(writer_at(tmp_path), OffsetRange(0, 0, 3))
    archive(writer_at(tmp_path), OffsetRange(0, 3, 4))
    writer = writer_at(tmp_path)
    assert writer.head is not None
    assert (writer.head.fence, len(writer.run_folders())) == (False, 2)


def test_a_commit_whose_answer_is_lost_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_lost_answer(monkeypatch, CommitStateUnknownException("no answer"), before=False)
    writer = writer_at(tmp_path)
    archive(writer, OffsetRange(0, 0, 3))
    archive(writer, OffsetRange(0, 3, 5))
    assert offsets(tmp_path) == [(0, each) for each in range(5)]


def test_a_commit_that_does_not_arrive_fails_and_the_next_run_archives_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_at(tmp_path)
    with monkeypatch.context() as patch:
        with_lost_answer(patch, ConnectionError("no route"), before=True)
        with pytest.raises(JobFailed, match="table=flights: the commit failed: ConnectionError: no route"):
            archive(writer, OffsetRange(0, 0, 3))
    archive(writer_at(tmp_path), OffsetRange(0, 0, 3))
    assert offsets(tmp_path) == [(0, 0), (0, 1), (0, 2)]


def test_a_commit_beside_compact_commits_the_same_files_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_at(tmp_path)
    archive(writer, OffsetRange(0, 0, 3))
    commits, times = Table._do_commit, iter(range(9))

    def beside(table: Table, *given: Any, **more: Any) -> None:
        if next(times) == 0:  # Another program sets a property first.
            raise CommitFailedException("the branch main has changed")
        commits(table, *given, **more)

    monkeypatch.setattr(Table, "_do_commit", beside)
    archive(writer, OffsetRange(0, 3, 5))
    assert offsets(tmp_path) == [(0, each) for each in range(5)]


def test_a_commit_computes_the_metadata_of_a_table_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time, pyiceberg copies all snapshots, of which an archive keeps 1,440."""
    writer, computed = writer_at(tmp_path), list[int]()

    def counted(base: Any, updates: Any, **more: Any) -> Any:
        computed.append(len(updates))
        return update_table_metadata(base, updates, **more)

    monkeypatch.setattr("pyiceberg.table.update_table_metadata", counted)
    archive(writer, OffsetRange(0, 0, 3))
    assert computed == [0, 2, 0, 2]  # Those of the data table, and those of the table of ranges.


def test_the_next_run_adds_the_ranges_of_a_run_that_died_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_at(tmp_path)
    archive(writer, OffsetRange(0, 0, 3))
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "add_rows", raising(JobFailed("killed")))
        with pytest.raises(JobFailed, match="killed"):
            archive(writer, OffsetRange(0, 3, 5))
    assert archived(tmp_path).records_by_partition() == {0: 5}
    assert rows_of(tmp_path) == [(0, 0, 3)]
    writer_at(tmp_path)
    assert rows_of(tmp_path) == [(0, 0, 3), (1, 3, 5)]


def test_a_reader_beside_an_archive_sees_each_commit_once(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)
    archive(writer, OffsetRange(0, 0, 3))
    found = archived(tmp_path)
    archive(writer, OffsetRange(0, 3, 5))
    assert (found.ends(), found.records_by_partition()) == ({0: 3}, {0: 3})


def test_the_last_day_that_a_table_can_have_is_archived_and_compacted(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)
    for first in range(2):
        run = writer.new_run()
        (name,) = write(writer, run, [OffsetRange(0, first, first + 1)])
        path = tmp_path / name
        rows = pq.ParquetFile(path).read()
        times = pa.array([253_402_300_799_999_000], pa.timestamp("us", "UTC"))
        pq.write_table(rows.set_column(2, "timestamp", times), path)
        writer.commit(Commit(first, run, 0, (PartitionRange(0, first, first + 1, None, None, 1),)), [name], 1, {})
    compact(tmp_path)
    assert [each.records for each in archived(tmp_path).files()] == [2]
    assert offsets(tmp_path) == [(0, 0), (0, 1)]


def test_a_table_that_was_rolled_back_archives_again_from_there(tmp_path: Path) -> None:
    for first in range(3):
        archive(writer_at(tmp_path), OffsetRange(0, first, first + 1))
    table = tables_at(tmp_path).load("flights")
    assert table is not None
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    writer = writer_at(tmp_path)
    assert writer.head is not None
    assert writer.head.tails == {0: Tail(0, 1, 1, 7)}
    archive(writer, OffsetRange(0, 1, 5))
    assert rows_of(tmp_path) == [(0, 0, 1), (1, 1, 5)]
    assert offsets(tmp_path) == [(0, each) for each in range(5)]


def test_records_that_another_program_deletes_keep_their_offsets(tmp_path: Path) -> None:
    archive(writer_at(tmp_path), OffsetRange(0, 0, 3))
    delete_second_record(writer_at(tmp_path))
    assert offsets(tmp_path) == [(0, 0), (0, 2)]
    assert archived(tmp_path).ends() == {0: 3}
    archive(writer_at(tmp_path), OffsetRange(0, 3, 4))
    assert offsets(tmp_path) == [(0, 0), (0, 2), (0, 3)]


def test_a_missing_data_file_is_named(tmp_path: Path) -> None:
    archive(writer_at(tmp_path), OffsetRange(0, 0, 3))
    file = Path(archived(tmp_path).paths()[0].removeprefix("file://"))
    file.unlink()
    with pytest.raises(JobFailed, match=r"the data file barnabas/flights/data/run=.* is missing"):
        archived(tmp_path).paths()


def test_only_the_newest_snapshots_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_writer, "SNAPSHOTS_KEPT", 3)
    monkeypatch.setattr(table_writer, "RANGES_KEPT", 2)
    writer = writer_at(tmp_path)
    for first in range(5):
        archive(writer, OffsetRange(0, first, first + 1))
    assert (len(writer.data.snapshots()), len(writer.ranges.snapshots())) == (3, 2)
    assert archived(tmp_path).records_by_partition() == {0: 5}


def delete_second_record(writer: TableWriter) -> None:
    """Replace the only file by one without its second record, as Spark's DELETE does."""
    file = Path(writer.archived().paths()[0].removeprefix("file://"))
    other = file.with_name("part-1.parquet")
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows.take([0, *range(2, rows.num_rows)]), other)
    made = parquet_file_to_data_file(writer.data.io, writer.data.metadata, f"file://{other}")
    with writer.data.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
        change.append_data_file(made)
        for old in data_files(writer.data):
            change.delete_data_file(old)


def test_a_run_that_dies_at_any_step_loses_no_offset_and_archives_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round continues the archive of the round before."""
    archive(writer_at(tmp_path), OffsetRange(0, 0, 2))
    for allowed in range(0, 100, size(5, 1)):
        with monkeypatch.context() as patch:
            died = dies_after(patch, allowed)
            with died:
                archive_more(tmp_path, 2)
        archive_more(tmp_path, 1)
        end = archived(tmp_path).ends()[0]
        assert offsets(tmp_path) == [(0, each) for each in range(end)]
        ranges = rows_of(tmp_path)
        assert [start for _, start, _ in ranges] == [0, *(each for _, _, each in ranges[:-1])]
        assert ranges[-1][2] == end
        if not died.happened:
            assert allowed > 10
            return
    raise AssertionError("a run has 100 or more steps")


def archive_more(folder: Path, records: int) -> None:
    """Run `archive` for the next records."""
    writer = writer_at(folder)
    end = writer.head.ends.get(0, 0) if writer.head else 0
    archive(writer, OffsetRange(0, end, end + records))


def test_a_commit_on_a_full_disk_fails_and_succeeds_once_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1) as disk:
        archive(writer_at(disk / "archive"), OffsetRange(0, 0, 2))
        writer = writer_at(disk / "archive")
        filling = fill(disk)
        with pytest.raises(JobFailed, match="the disk is full: free some space, and run the job again"):
            archive(writer, OffsetRange(0, 2, 3), groups=(), files=[])
        filling.unlink()
        archive_more(disk / "archive", 2)
        assert offsets(disk / "archive") == [(0, each) for each in range(4)]


def test_small_files_are_joined_in_one_snapshot_beside_an_archive(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)
    for first in range(0, 12, 2):
        archive(writer, OffsetRange(0, first, first + 2), OffsetRange(1, first, first + 1))
    table = tables_at(tmp_path).load("flights")
    assert table is not None
    assert [len(each) for each in files_to_join(table, 9)] == [3, 3]
    assert files_to_join(table, 5) == []
    before = offsets(tmp_path)
    archive(writer, OffsetRange(0, 12, 14))
    join(table, 9)
    archive(writer, OffsetRange(0, 14, 15))
    assert offsets(tmp_path) == sorted([*before, (0, 12), (0, 13), (0, 14)])
    assert len(archived(tmp_path).files()) == 4
    assert writer_at(tmp_path).head == writer.head


def test_a_compaction_that_dies_at_any_step_loses_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed in range(0, 100, size(5, 1)):
        for _ in range(2):
            archive_more(tmp_path, 1)
        before, rows = offsets(tmp_path), rows_of(tmp_path)
        with monkeypatch.context() as patch:
            died = dies_after(patch, allowed)
            with died:
                compact(tmp_path)
        assert (offsets(tmp_path), rows_of(tmp_path)) == (before, rows)
        if not died.happened:
            assert allowed > 5
            assert len(archived(tmp_path).files()) == 1
            return
    raise AssertionError("a compaction has 100 or more steps")


def test_files_that_no_snapshot_names_are_removed_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_writer, "SNAPSHOTS_KEPT", 1)
    for _ in range(3):
        archive_more(tmp_path, 1)
    compact(tmp_path)
    table = tables_at(tmp_path).load("flights")
    assert table is not None
    assert remove_unnamed(tables_at(tmp_path), table, before_ms=0) == 0
    archive_more(tmp_path, 1)
    table.refresh()
    before = set((tmp_path / "barnabas" / "flights").rglob("*.*"))
    removed = remove_unnamed(tables_at(tmp_path), table, before_ms=2**62)
    assert removed == len(before - set((tmp_path / "barnabas" / "flights").rglob("*.*"))) > 5
    assert offsets(tmp_path) == [(0, each) for each in range(4)]
    assert len(list((tmp_path / "barnabas" / "flights" / "data").iterdir())) == 2


def compact(folder: Path) -> None:
    """Join all files of both tables, and remove what no snapshot names."""
    table, ranges = tables_at(folder).load("flights"), tables_at(folder).load("flights$ranges")
    assert table is not None
    assert ranges is not None
    join(table, 1000)
    join_rows(ranges)
    for each in (table, ranges):
        remove_unnamed(tables_at(folder), each, before_ms=0)


def join(table: Table, records_max: int) -> None:
    """Join the files of a data table, as the job `compact` does by Spark."""
    groups, new = files_to_join(table, records_max), []
    for group in groups:
        paths = [each.file_path.removeprefix("file://") for each in group]
        path = Path(paths[0]).with_name(f"joined-{uuid.uuid4().hex}.parquet")
        pq.write_table(pa.concat_tables(pq.ParquetFile(each).read() for each in paths), path)
        new.append(f"file://{path}")
    if groups:
        replace(table, [each for group in groups for each in group], new)


def rows_of(folder: Path) -> list[tuple[int, int, int]]:
    """Return commit, start and end of each row in the table of ranges."""
    table = tables_at(folder).load("flights$ranges")
    assert table is not None
    found = table.scan(selected_fields=("commit", "start", "end")).to_arrow().to_pylist()
    return sorted((each["commit"], each["start"], each["end"]) for each in found)


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def with_lost_answer(patch: pytest.MonkeyPatch, error: Exception, *, before: bool) -> None:
    """Let the catalog fail at the first commit of records, before or after it has committed."""
    commit, failed = Table._do_commit, list[bool]()

    def lost(table: Table, *given: Any, **more: Any) -> None:
        is_ours = table.name()[-1] == "flights" and table.metadata.properties.get("barnabas.topic") and not failed
        is_record = any(type(each).__name__ == "AddSnapshotUpdate" for each in more.get("updates", ()))
        if before and is_ours and is_record:
            failed.append(True)
            raise error
        commit(table, *given, **more)
        if is_ours and is_record:
            failed.append(True)
            raise error

    patch.setattr(Table, "_do_commit", lost)
