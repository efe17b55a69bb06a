"""The commits of a run to the tables of an archive: exactly once, and only while no other run has committed.

pyiceberg would commit the files of a run again on top of the commits of another run, so its own retries are off. Each
commit here is compared with the newest one that the run knows, and a commit of unknown outcome is looked for.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import TableUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from barnabas_jobs.files.archive_tables import (
    DATA,
    FIELDS,
    RANGES,
    REJECTED,
    ROWS,
    ArchivedTopic,
    ArchiveTables,
    added,
    ancestors,
    as_job_failed,
    columns_of,
    newest_head,
    properties_of,
    rows_uri,
    table_name,
)
from barnabas_jobs.planning.archived import (
    CLUSTER_ID,
    COMMIT,
    PREFIX,
    RUN,
    TOPIC,
    TOPIC_ID,
    Commit,
    Head,
    Identity,
    head_of,
    left_over,
    new_run,
    tails_after,
)
from barnabas_jobs.planning.columns import IncompatibleColumns, merged, plain
from barnabas_jobs.planning.errors import JobFailed, Refused

TRIES: Final = 10
"""The number of attempts of a commit; each other one failed because `compact` committed at the same time."""
SNAPSHOTS_KEPT: Final = 1440
"""The number of snapshots that a data table keeps: those of a day with a commit each minute."""
RANGES_KEPT: Final = 50
FOLDER: Final = "run="
DAY: Final = "timestamp_day"
NAME_MAPPING: Final = "schema.name-mapping.default"
PROPERTIES: Final = {
    "format-version": "2",
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.target-size-bytes": str(1 << 20),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
}
BY_DAY: Final = PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=DayTransform(), name=DAY))
BY_OFFSET: Final = SortOrder(
    *(SortField(each, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST) for each in (1, 2))
)


REJECTED_FIELDS: Final = Schema(
    *FIELDS.fields, NestedField(11, "reason", StringType()), NestedField(12, "commit", LongType())
)
"""The columns of a table of rejected records."""


class CachedTransaction(Transaction):
    """A transaction that computes a table's metadata once for each change, and not for each look at it.

    The computation copies all snapshots: with 1,440 of them, a commit would take seconds.
    """

    _computed: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the changes so far."""
        base, updates = self._table.metadata, self._updates
        if self._computed is None or self._computed[0] is not base or self._computed[1] is not updates:
            self._computed = (base, updates, super().table_metadata)
        return self._computed[2]


class OtherRun(JobFailed):
    """A commit that came too late, because another run has committed."""


class TableWriter:
    """A run's access to the tables of one topic.

    `head` is the newest commit; a commit succeeds only if the table still has it.
    """

    def __init__(self, tables: ArchiveTables, data: Table, ranges: Table, clock: Callable[[], float]) -> None:
        self._tables = tables
        self.identity = Identity(*(data.properties[name] for name in (TOPIC, TOPIC_ID, CLUSTER_ID)))
        self.data = data
        self.ranges = ranges
        self.head = newest_head(data)
        self._clock = clock

    @property
    def number(self) -> int:
        """The number of the next commit."""
        return self.head.number + 1 if self.head else 0

    def new_run(self) -> str:
        """Return a name for the next commit that no other run has."""
        return new_run(self.number, uuid.uuid4().hex[:12])

    def folder(self, run: str) -> str:
        """Return the folder for the data files of a run, in the archive's store."""
        return f"{self._data_folder(self.data)}/{FOLDER}{run}"

    def rejected_folder(self, run: str) -> str:
        """Return the folder for a run's files of rejected records, whose table is created if there is none."""
        name = f"{self.data.name()[-1]}{REJECTED}"
        own = {f"{PREFIX}rejected-of": self.data.name()[-1]}
        return f"{self._data_folder(_table(self._tables, name, REJECTED_FIELDS, own, BY_DAY, BY_OFFSET))}/{FOLDER}{run}"

    def rejected(self) -> Table | None:
        """Return the table of rejected records, or None if there is none."""
        return self._tables.load(f"{self.data.name()[-1]}{REJECTED}")

    def _data_folder(self, table: Table) -> str:
        folder = self._tables.in_store(f"{table.location()}/{DATA}")
        if folder is None:
            raise Refused(
                f"table={table.name()[-1]}: its location is {table.location()}; allowed: a location in "
                f"archive={self._tables}"
            )
        return folder

    def archived(self) -> ArchivedTopic:
        """Return the archived topic as it is now."""
        return ArchivedTopic(self._tables, self.data)

    def run_folders(self) -> list[str]:
        """Return the runs that have a folder of data files."""
        names = self._tables.store.names(self._data_folder(self.data))
        return [name.removeprefix(FOLDER) for name in names if name.startswith(FOLDER)]

    def remove_left_over(self, folders: Sequence[str], topic_partitions: int, topic_config: dict[str, str]) -> int:
        """Remove the folders of runs that were interrupted before their commit, and return the number of folders.

        `folders` were listed before the table was read, so the run of another folder may have committed since. First
        commit a fence, after which an interrupted run that is still alive cannot commit. Raises OtherRun if a run has
        committed meanwhile.
        """
        named = {run for each in self.data.snapshots() if (run := properties_of(each).get(RUN))}
        runs = left_over(self.head, folders, named)
        if any(run >= new_run(self.number, "") for run in runs):
            fence = new_run(self.number, uuid.uuid4().hex[:12])
            empty = Commit(self.number, fence, self._now_ms(), ())
            self._commit(self._head(empty, topic_partitions, topic_config, fence=True), [], None)
        has_rejected = bool(runs) and self.rejected() is not None
        for run in runs:
            self._tables.store.remove(self.folder(run))
            if has_rejected:
                self._tables.store.remove(self.rejected_folder(run))
        return len(runs)

    def commit(
        self,
        commit: Commit,
        files: Sequence[str],
        topic_partitions: int,
        topic_config: dict[str, str],
        columns: pa.Schema | None = None,
        rejected: Sequence[str] = (),
    ) -> None:
        """Commit data files, whose names are relative to the store, with their ranges.

        `columns` are those beside the record, and `rejected` the files of the table of rejected records. Raises
        OtherRun if the table has a newer commit than `head`; the files are then in no snapshot.
        """
        with as_job_failed(f"{rows_uri(self.ranges, commit.run)} cannot be written"):
            write_rows(self.ranges, commit)
        self._commit(self._head(commit, topic_partitions, topic_config), self._uris(files), columns)
        self._add_rejected(commit.number, commit.run, rejected)
        self.add_rows(commit.number, commit.run)

    def _uris(self, names: Sequence[str]) -> list[str]:
        return [f"{self._tables.root}/{name}" for name in names]

    def check_columns(self, columns: pa.Schema) -> None:
        """Raise Refused if the table has columns of other types, in which these values cannot be."""
        _merged(self.data, columns)

    def _head(
        self, commit: Commit, topic_partitions: int, topic_config: dict[str, str], *, fence: bool = False
    ) -> Head:
        return Head(
            number=commit.number,
            run=commit.run,
            committed_at_ms=commit.committed_at_ms,
            tails=tails_after(self.head.tails if self.head else {}, commit.ranges),
            topic_partitions=topic_partitions,
            topic_config=topic_config,
            fence=fence,
        )

    def _commit(self, head: Head, uris: list[str], columns: pa.Schema | None) -> None:
        for _ in range(TRIES):
            self._check_unchanged()
            with self._known_outcome(head.run), CachedTransaction(self.data) as transaction:
                _add_columns(self.data, transaction, columns if uris else None)
                expire(transaction, SNAPSHOTS_KEPT)
                transaction.add_files(uris, head.properties(self.identity), check_duplicate_files=False)
            if has_run(self.data, head.run):
                self.head = head
                return
        raise _outrun(self.data)

    def _check_unchanged(self) -> None:
        """Raise OtherRun unless the newest commit is still `head`."""
        with as_job_failed(f"table={self.data.name()[-1]}: the table cannot be read"):
            self.data.refresh()
        now, before = newest_head(self.data), self.head
        if (now and (now.number, now.run)) != (before and (before.number, before.run)):
            raise OtherRun(
                f"table={self.data.name()[-1]}: another run has archived this topic since this run began, or the table "
                "was rolled back, so this commit does not count; let one run at a time write an archive"
            )

    @contextmanager
    def _known_outcome(self, run: str) -> Iterator[None]:
        """Return if the commit in the block succeeded, or certainly failed for a conflict.

        Raises JobFailed if it failed otherwise, and did not reach the table.
        """
        what = f"table={self.data.name()[-1]}: the commit failed"
        with as_job_failed(what):
            try:
                yield
            except CommitFailedException:
                self.data.refresh()
            except Exception:
                self.data.refresh()
                if not has_run(self.data, run):  # The answer of the catalog may be lost though it has committed.
                    raise

    def add_rows(self, number: int, run: str) -> None:
        """Add the rows of a commit to the table of ranges, unless it has them. Raises JobFailed on failure."""
        _add(self.ranges, number, run, [rows_uri(self.ranges, run)])

    def _add_rejected(self, number: int, run: str, files: Sequence[str]) -> None:
        table = self.rejected() if files else None
        if table is not None:
            _add(table, number, run, self._uris(files))

    def recover_rows(self) -> None:
        """Make the table of ranges, and that of rejected records, agree with the data table.

        Add the rows of a commit whose run ended before it added them, and delete the rows of commits that are no more,
        because somebody rolled the data table back. The rows of ranges come last, so if the newest ones are there, all
        are.
        """
        commits = _commits(self.data)
        last = commits[-1].run if commits else None
        if added(self.ranges).get(RUN) == last:
            return
        self._recover_rejected(commits[-1] if commits else None)
        with as_job_failed(f"table={self.ranges.name()[-1]}: the table cannot be read"):
            first = commits[0].number if commits else 0
            found = self.ranges.scan(f"commit >= {first}", selected_fields=("run",)).to_arrow()
            present = set(found["run"].to_pylist())
            stale = present - {each.run for each in commits}
            if stale:
                kept = [each for each in commits if each.run in present]
                own = {COMMIT: str(kept[-1].number), RUN: kept[-1].run} if kept else {}
                named = ", ".join(f"'{run}'" for run in sorted(stale))
                self.ranges.delete(f"run in ({named})", snapshot_properties=own)
        for each in commits:
            if each.run not in present:
                self.add_rows(each.number, each.run)

    def _recover_rejected(self, head: Head | None) -> None:
        table, number = self.rejected(), head.number if head else -1
        if table is None:
            return
        if int(added(table).get(COMMIT, -1)) > number:
            with as_job_failed(f"table={table.name()[-1]}: rows after commit {number} cannot be deleted"):
                table.delete(f"commit > {number}", snapshot_properties={COMMIT: str(number)})
        if head is not None:
            names = self._tables.store.sizes(self.rejected_folder(head.run))
            self._add_rejected(number, head.run, [name for name in names if name.endswith(".parquet")])

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def begin(tables: ArchiveTables, identity: Identity, clock: Callable[[], float]) -> TableWriter:
    """Return a writer for the tables of a topic, which are created if there are none.

    Raises Refused if another program made a table of the topic's name.
    """
    tables.store.make(tables.namespace)
    with as_job_failed(f"archive={tables}: the namespace {tables.namespace} cannot be created"):
        parts = tuple(tables.namespace.split("."))
        for length in range(1, len(parts) + 1):
            tables.catalog.create_namespace_if_not_exists(parts[:length])
    number = 1
    for table in tables.tables(identity.topic):
        if (table.properties[TOPIC_ID], table.properties.get(CLUSTER_ID)) == identity[1:]:
            break
        number += 1
    name = table_name(identity.topic, number)
    own = {TOPIC: identity.topic, TOPIC_ID: identity.topic_id, CLUSTER_ID: identity.cluster_id}
    data = _table(tables, name, FIELDS, own, BY_DAY, BY_OFFSET)
    ranges = _table(tables, f"{name}{RANGES}", ROWS, {f"{PREFIX}ranges-of": name}, UNPARTITIONED_PARTITION_SPEC, None)
    _check_partitions(data)
    if data.properties.get(TOPIC_ID) != identity.topic_id:
        raise OtherRun(f"table={name}: another run has created this table for another topic; run the job again")
    return TableWriter(tables, data, ranges, clock)


def _table(
    tables: ArchiveTables,
    name: str,
    schema: Schema | pa.Schema,
    own: dict[str, str],
    spec: PartitionSpec,
    order: SortOrder | None,
) -> Table:
    """Return the table, which is created if there is none."""
    found = tables.load(name)
    if found is not None:
        return found
    location = f"{tables.root}/{tables.namespace}/{name}"
    more: dict[str, Any] = {} if order is None else {"sort_order": order}
    with as_job_failed(f"table={name}: the table cannot be created in archive={tables}"):
        try:
            made = tables.catalog.create_table(
                tables.identifier(name), schema, location, spec, properties={**PROPERTIES, **own}, **more
            )
            with made.transaction() as transaction:
                transaction.set_properties({NAME_MAPPING: made.schema().name_mapping.model_dump_json()})
            return made
        except TableAlreadyExistsError:
            return tables.catalog.load_table(tables.identifier(name))


def _check_partitions(table: Table) -> None:
    """Raise Refused if another program has changed how the table is partitioned."""
    found = [str(each.transform) for each in table.spec().fields]
    if found not in ([], ["day"]):
        raise Refused(
            f"table={table.name()[-1]}: the table is partitioned by {', '.join(map(str, table.spec().fields))}; "
            "allowed: day(timestamp)"
        )


def _commits(table: Table) -> list[Head]:
    """Return the commits that have ranges among the snapshots that have not expired, the oldest first."""
    found: dict[str, Head] = {}
    for snapshot in ancestors(table):
        head = head_of(properties_of(snapshot), table.name()[-1])
        if head is not None and not head.fence:
            found[head.run] = head
    return sorted(found.values(), key=lambda each: each.number)


def _add_columns(table: Table, transaction: Transaction, columns: pa.Schema | None) -> None:
    """Add columns and their new fields to the table. Raises Refused if the table has a column of another type."""
    if columns is None:
        return
    wanted, present = _merged(table, columns), columns_of(table)
    if any(each.name not in present.names or present.field(each.name).type != each.type for each in wanted):
        with transaction.update_schema() as update:
            update.union_by_name(wanted)


def _merged(table: Table, columns: pa.Schema) -> pa.Schema:
    """Return these columns with the fields that they have in the table, too. Raises Refused if that is not possible."""
    present = {each.name: each.type for each in columns_of(table)}
    try:
        wanted = {each.name: plain(each.type) for each in columns}
        return pa.schema([(name, merged(name, present.get(name, kind), kind)) for name, kind in wanted.items()])
    except IncompatibleColumns as error:
        raise Refused(
            f"table={table.name()[-1]}: {error}. Archive with the earlier schema, or into another namespace."
        ) from error


def _add(table: Table, number: int, run: str, uris: Sequence[str]) -> None:
    """Add the files of a commit to a table, unless it has them. Raises JobFailed on failure."""

    def add(transaction: Transaction) -> None:
        if not has_run(table, run):
            expire(transaction, RANGES_KEPT)
            transaction.add_files(list(uris), {COMMIT: str(number), RUN: run}, check_duplicate_files=False)

    change(table, add, f"the rows of commit {number} cannot be added")


def change(table: Table, changed: Callable[[Transaction], None], what: str) -> None:
    """Commit the changes of a transaction, and again if another program has committed meanwhile.

    Raises JobFailed with the text `what` on failure; whether the table has the changes is then unknown.
    """
    with as_job_failed(f"table={table.name()[-1]}: {what}"):
        for _ in range(TRIES):
            table.refresh()
            with suppress(CommitFailedException):
                with CachedTransaction(table) as transaction:
                    changed(transaction)
                return
        raise _outrun(table)


def _outrun(table: Table) -> JobFailed:
    return JobFailed(f"table={table.name()[-1]}: {TRIES} commits failed because of other programs' commits")


def has_run(table: Table, run: str) -> bool:
    """True if a run has committed to the table."""
    return any(properties_of(each).get(RUN) == run for each in table.snapshots())


def expire(transaction: Transaction, kept: int) -> None:
    """Let the oldest snapshots expire, so that the table has `kept` ones after the next commit."""
    snapshots = sorted(transaction.table_metadata.snapshots, key=lambda each: each.sequence_number or 0)
    named = {each.snapshot_id for each in transaction.table_metadata.refs.values()}
    ids = [each.snapshot_id for each in snapshots[: max(0, len(snapshots) + 1 - kept)] if each.snapshot_id not in named]
    if ids:
        ExpireSnapshots(transaction).by_ids(ids).commit()


def write_rows(table: Table, commit: Commit) -> None:
    """Write the file with the rows of a commit, which `TableWriter.add_rows` adds to the table of ranges."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for each in commit.groups:
        groups.setdefault(each.partition, []).append({"group": each.group, "offset": each.offset})
    time = datetime.fromtimestamp(commit.committed_at_ms / 1000, UTC)
    own = {"commit": commit.number, "run": commit.run, "committed_at": time}
    rows = [
        {**own, **structs.asdict(each), "groups": [] if each.lost else groups.get(each.partition, [])}
        for each in commit.ranges
    ]
    with table.io.new_output(rows_uri(table, commit.run)).create() as file:
        pq.write_table(pa.Table.from_pylist(rows, ROWS), file, compression="zstd")
