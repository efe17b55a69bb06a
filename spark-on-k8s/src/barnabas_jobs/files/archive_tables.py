"""The tables of an archive: for each topic an Iceberg table with its records, and one with its ranges of offsets.

The data table is the archive's ledger: see `planning.archived` for what its snapshots record. The table `TOPIC$ranges`
has a row for each commit and partition; it outlives snapshots that expire, and answers questions about the past.

Files of tables in a local folder survive a power cut once they are closed. pyiceberg's own IO leaves files to the
cache of the kernel, while the catalog syncs the commit that names these files.
"""

import io
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from sqlalchemy.exc import OperationalError, ProgrammingError

from barnabas_jobs.files.store import Store, sync
from barnabas_jobs.planning.archived import (
    CLUSTER_ID,
    COMMIT,
    PREFIX,
    TOPIC,
    TOPIC_ID,
    ArchivedFile,
    GroupOffset,
    Head,
    OffsetRange,
    head_of,
)
from barnabas_jobs.planning.columns import plain
from barnabas_jobs.planning.errors import JobFailed, Refused

IMPLEMENTATION: Final = "barnabas_jobs.files.archive_tables.DurableFileIO"
"""The value of the catalog property `py-io-impl`."""


class DurableFileIO(PyArrowFileIO):
    """The IO of tables whose files are local."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file that is synced when its stream is closed."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _DurableFile(location, path, self.fs_by_scheme(scheme, netloc))


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        """Create the file, and return its stream. Raises FileExistsError if there is one and `overwrite` is false."""
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return _Synced(io.FileIO(path, "wb" if overwrite else "xb"), path.parent)


class _Synced(io.BufferedWriter):
    def __init__(self, raw: io.FileIO, folder: Path) -> None:
        super().__init__(raw)
        self._folder = folder

    def close(self) -> None:
        """Sync file and folder, and close the file."""
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            sync(self._folder)
        super().close()


CATALOG: Final = "barnabas"
CATALOG_FILE: Final = "catalog.db"
CATALOG_TABLES: Final = 2
"""The number of tables that pyiceberg makes in a new SQL database."""
DATA: Final = "data"
RANGES: Final = "$ranges"
REJECTED: Final = "$rejected"
ROWS_AT_ONCE: Final = 1 << 14
READERS: Final = 8
FILES_AT_ONCE: Final = 64
"""The number of small files of ranges that are read together, because a bucket answers each request late."""
BOUNDED: Final = ("partition", "offset")
FIELDS: Final = Schema(
    NestedField(1, "partition", IntegerType()),
    NestedField(2, "offset", LongType()),
    NestedField(3, "timestamp", TimestamptzType()),
    NestedField(4, "timestampType", IntegerType()),
    NestedField(5, "key", BinaryType()),
    NestedField(6, "value", BinaryType()),
    NestedField(
        7,
        "headers",
        ListType(8, StructType(NestedField(9, "key", StringType()), NestedField(10, "value", BinaryType())), False),
    ),
)
"""The columns of a data table."""
ROWS: Final = pa.schema(
    [
        pa.field("commit", pa.int64()),
        pa.field("run", pa.string()),
        pa.field("committed_at", pa.timestamp("us", "UTC")),
        pa.field("partition", pa.int32()),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("epoch", pa.int32()),
        pa.field("checksum", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("lost", pa.bool_()),
        pa.field("groups", pa.list_(pa.field("element", pa.struct([("group", pa.string()), ("offset", pa.int64())])))),
    ]
)
"""The columns of a table of ranges."""


class ArchiveTables:
    """The tables of one archive, in one namespace of a catalog.

    `properties` are those of pyiceberg for the catalog. Without any, the catalog is a file of SQLite in the archive's
    folder. `location` is a folder or `s3a://BUCKET/FOLDER`. All methods raise JobFailed if catalog or store fails.
    """

    def __init__(self, location: str, properties: Mapping[str, str], namespace: str, store: Store) -> None:
        if "#" in location or "%" in location:
            raise Refused(f"archive={location}; allowed: a location without the characters # and %")
        self.location = location.rstrip("/") or "/"
        self.namespace = namespace
        self.store = store
        self._embedded = Path(self.location).absolute() / CATALOG_FILE if "type" not in properties else None
        self._properties = {**self._defaults(), **properties}

    def __str__(self) -> str:
        return self.location

    def _defaults(self) -> dict[str, str]:
        if self._embedded is None:
            return {"warehouse": self.root} | ({} if self.in_bucket else {"py-io-impl": IMPLEMENTATION})
        if self.in_bucket:
            raise Refused(
                f"archive={self.location} is in a bucket, so the option catalog is needed; allowed: the properties of "
                "an Iceberg catalog, such as type=rest and uri=http://HOST:PORT"
            )
        return {
            "type": "sql",
            "uri": f"sqlite:///{self._embedded}",
            "warehouse": self.root,
            "py-io-impl": IMPLEMENTATION,
        }

    @property
    def in_bucket(self) -> bool:
        """True if the archive is in S3."""
        return self.location.startswith("s3a://")

    @property
    def root(self) -> str:
        """The location of the archive as tables name it."""
        return (
            self.location.replace("s3a://", "s3://", 1)
            if self.in_bucket
            else f"file://{Path(self.location).absolute()}"
        )

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog. Raises Refused if its properties are wrong."""
        with as_job_failed(f"archive={self}: the catalog cannot be opened", Refused):
            # Another process may make a table of a new catalog between the check and the creation, which then fails.
            for _ in range(CATALOG_TABLES):
                with suppress(OperationalError, ProgrammingError):
                    return load_catalog(CATALOG, **self._properties)
            return load_catalog(CATALOG, **self._properties)

    def topic(self, topic: str, topic_id: str | None = None) -> "ArchivedTopic":
        """Return the archived topic with this id, or the newest one of this name.

        Raises Refused if there is none, or if another program made a table of this name.
        """
        found = self.topics(topic)
        if not found:
            raise Refused(f"archive={self}: there is no archive of the topic {topic!r}; run `archive` first")
        wanted = [each for each in found if topic_id in (None, each.topic_id)]
        if not wanted:
            ids = ", ".join(each.topic_id for each in found)
            raise Refused(f"topic_id={topic_id}: the archive has no such id of {topic!r}; allowed: {ids}")
        return wanted[-1]

    def topics(self, topic: str) -> list["ArchivedTopic"]:
        """Return the archived topics of this name that have a commit, the oldest first."""
        found = []
        for table in self.tables(topic):
            archived = ArchivedTopic(self, table)
            if archived.head is not None:
                found.append(archived)
        return found

    def tables(self, topic: str) -> Iterator[Table]:
        """Yield the data tables of all topics of this name, the oldest first.

        Raises Refused if another program made a table of this name.
        """
        if self._embedded is not None and not self._embedded.exists():
            return
        number = 1
        while (table := self.load(table_name(topic, number))) is not None:
            check_ours(table, topic)
            yield table
            number += 1

    def identifier(self, name: str) -> tuple[str, ...]:
        """Return the full name of a table."""
        return *self.namespace.split("."), name

    def load(self, name: str) -> Table | None:
        """Return the table, or None if there is none."""
        with as_job_failed(f"table={name}: the catalog of archive={self} cannot be read"):
            try:
                return self.catalog.load_table(self.identifier(name))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def in_store(self, uri: str) -> str | None:
        """Return the name of a file in the archive's store, or None if the file is elsewhere."""
        prefix = f"{self.root.rstrip('/')}/"
        return uri.removeprefix(prefix) if uri.startswith(prefix) else None


def table_name(topic: str, number: int) -> str:
    """Return the name of the data table of the first, second, ... topic of this name."""
    return topic if number == 1 else f"{topic}${number}"


def check_ours(table: Table, topic: str) -> None:
    """Raise Refused if another program made the table, or changed the columns of records."""
    name = table.name()[-1]
    if table.properties.get(TOPIC) != topic or TOPIC_ID not in table.properties:
        raise Refused(
            f"table={name}: somebody else made this table, because it has no property {PREFIX}topic={topic}; archive "
            "into another namespace, or rename the table"
        )
    present = {field.name: str(field.field_type) for field in table.schema().fields}
    for field in FIELDS.fields:
        found = present.get(field.name)
        if found is None or found.split("<")[0] != str(field.field_type).split("<")[0]:
            raise Refused(
                f"table={name}: the column {field.name} is {found or 'gone'}; allowed: {field.field_type}. "
                "Roll the table back, or archive into another namespace."
            )


class ArchivedTopic:
    """One topic's archive: the records in the data table, and the table of their ranges.

    `commit` is the number of a commit; without it, methods look at the newest one. Records of a commit are those below
    its ends.
    """

    def __init__(self, tables: ArchiveTables, table: Table) -> None:
        self._tables = tables
        self._table = table
        self.name: str = table.name()[-1]
        self.table = ".".join(table.name())
        self.io = table.io
        self.topic = table.properties[TOPIC]
        self.topic_id = table.properties[TOPIC_ID]
        self.cluster_id = table.properties[CLUSTER_ID]
        self.head = newest_head(table)

    @property
    def topic_partitions(self) -> int:
        """The number of partitions that the topic had at the last commit."""
        return self.head.topic_partitions if self.head else 0

    @property
    def topic_config(self) -> dict[str, str]:
        """The configs that were set on the topic itself at the last commit."""
        return self.head.topic_config if self.head else {}

    @property
    def records(self) -> int:
        """The number of records in the data table."""
        snapshot = self._table.current_snapshot()
        summary = snapshot.summary if snapshot else None
        return int(summary["total-records"] or 0) if summary else 0

    def ends(self, commit: int | None = None) -> dict[int, int]:
        """Return by partition the offset after the last one that is archived, or recorded as lost.

        Raises Refused if the archive has no such commit.
        """
        newest = self.head.number if self.head else -1
        if commit is not None and not 0 <= commit <= newest:
            raise Refused(f"commit={commit}: {self.name} has no such commit; allowed: 0 to {newest}")
        if commit is None:
            return self.head.ends if self.head else {}
        return self._by_partition("end", "max", commit)

    def spans(self) -> list[OffsetRange]:
        """Return, for each partition, the range from its first archived offset to the offset that `ends` returns."""
        starts, ends = self._by_partition("start", "min", with_lost=False), self.ends()
        return [OffsetRange(partition, start, ends[partition]) for partition, start in sorted(starts.items())]

    def records_by_partition(self) -> dict[int, int]:
        """Return the number of archived records by partition, as the commits counted them."""
        return self._by_partition("records", "sum")

    def _by_partition(
        self, column: str, function: str, commit: int | None = None, *, with_lost: bool = True
    ) -> dict[int, int]:
        """Return by partition the result of a function (min, max or sum) of a column of ranges."""
        combine: dict[str, Callable[[int, int], int]] = {"min": min, "max": max, "sum": operator.add}
        found: dict[int, int] = {}
        for rows in self._rows(commit, "partition", column, "lost"):
            wanted = rows if with_lost else rows.filter(~pc.field("lost"))
            results = wanted.group_by("partition").aggregate([(column, function)]).to_pydict()
            for partition, value in zip(results["partition"], results[f"{column}_{function}"], strict=True):
                found[partition] = combine[function](found[partition], value) if partition in found else value
        return found

    def group_offsets(self, commit: int) -> list[GroupOffset]:
        """Return the committed offsets of all groups in this topic, as they were at a commit.

        A committed offset may be above the archived end of its partition, because groups also read what is archived
        later.
        """
        found = []
        for rows in self._rows(commit, "partition", "groups", first=commit):
            for each in rows.to_pylist():
                found += [
                    GroupOffset(group["group"], each["partition"], group["offset"]) for group in each["groups"] or ()
                ]
        return sorted(found)

    def paths(self) -> list[str]:
        """Return the URLs of the data files of the newest snapshot, for Spark.

        Raises Refused if another program left delete files, and JobFailed if a file is missing.
        """
        return [for_spark(each.path) for each in self.files()]

    def files(self) -> list[ArchivedFile]:
        """Return the data files of the newest snapshot, which `io` opens. Raises as `paths`."""
        # What pyiceberg knows of 40,000 files takes hundreds of megabytes, so describe each as soon as it is read.
        found = [_described(self._table, each) for each in data_files(self._table)]
        self._check_present(found)
        return found

    def _check_present(self, files: Sequence[ArchivedFile]) -> None:
        # One recursive listing is faster than a request for each of up to 40,000 files.
        names = {name: each for each in files if (name := self._tables.in_store(each.path)) is not None}
        folder = self._tables.in_store(self._table.location())
        sizes = self._tables.store.sizes(folder) if names and folder else {}
        for name, file in names.items():
            size = sizes.get(name)
            if size != file.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise JobFailed(
                    f"archive={self._tables}: the data file {name} {found}; the table {self.name} expects "
                    f"{file.bytes} bytes. Restore the file from a backup."
                )

    def commit_number(self, at_ms: int | None = None) -> int:
        """Return the number of the newest commit with ranges, or of the newest one at or before a time.

        Raises Refused if there is none.
        """
        limit = at_ms if at_ms is not None else 2**62 // 1000
        number, first_ms = -1, 2**62
        for rows in self._rows(None, "commit", "committed_at"):
            times = rows["committed_at"].cast(pa.int64())
            first_ms = min(first_ms, pc.min(times).as_py() // 1000) if rows.num_rows else first_ms
            early = rows.filter(pc.less_equal(times, pa.scalar(limit * 1000 + 999)))
            number = max(number, pc.max(early["commit"]).as_py()) if early.num_rows else number
        if number < 0:
            first = datetime.fromtimestamp(first_ms / 1000, UTC).isoformat() if first_ms < 2**62 else "not there yet"
            raise Refused(f"until={at_ms} (ms since 1970): the first commit of the archive {self.table} is of {first}")
        return number

    def _rows(self, commit: int | None, *columns: str, first: int = 0) -> Iterator[pa.Table]:
        """Yield the rows of all commits from `first` up to this one, or up to the newest one, part by part."""
        newest = self.head.number if self.head else -1
        last = newest if commit is None else commit
        table = self._tables.load(f"{self.name}{RANGES}")
        with as_job_failed(f"table={self.name}{RANGES}: the table cannot be read"):
            if table is not None and table.current_snapshot() is not None:
                yield from _rows_between(table, first, last, columns)
            yield from self._unadded(table, first, last, columns)

    def _unadded(self, table: Table | None, first: int, last: int, columns: tuple[str, ...]) -> Iterator[pa.Table]:
        """Yield the rows of the newest commit, if a run ended between its commit and the addition of its rows."""
        head = self.head
        if table is None or head is None or head.fence or not first <= head.number <= last:
            return
        if int(added(table).get(COMMIT, -1)) < head.number:
            yield read_rows(table, head.run).select(columns)


def columns_of(table: Table) -> pa.Schema:
    """Return the columns of a table in Arrow."""
    return pa.schema([(each.name, plain(each.type)) for each in schema_to_pyarrow(table.schema())])


def _rows_between(table: Table, first: int, last: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield rows of the commits `first` to `last`, file by file; a reader of pyiceberg would hold all files at once."""
    tasks = list(table.scan(f"commit >= {first} and commit <= {last}").plan_files())
    if any(task.delete_files for task in tasks):
        raise _has_delete_files(table)
    chosen = (pc.field("commit") >= first) & (pc.field("commit") <= last)

    def parts(file: DataFile) -> Iterator[pa.Table]:
        with table.io.new_input(file.file_path).open() as opened:
            wanted = list({*columns, "commit"})
            for batch in pq.ParquetFile(opened).iter_batches(ROWS_AT_ONCE, columns=wanted, use_threads=False):
                yield pa.Table.from_batches([batch]).filter(chosen).select(columns)

    small = [each.file for each in tasks if each.file.record_count <= ROWS_AT_ONCE]
    with ThreadPoolExecutor(READERS, "ranges") as pool:
        for start in range(0, len(small), FILES_AT_ONCE):
            for found in pool.map(lambda file: list(parts(file)), small[start : start + FILES_AT_ONCE]):
                yield from found
    for each in tasks:
        if each.file.record_count > ROWS_AT_ONCE:
            yield from parts(each.file)


def newest_head(table: Table) -> Head | None:
    """Return the newest commit of ours among the ancestors of the table's state; None if the table has no snapshot.

    Snapshots of other programs, such as one that deletes the records of a person, have no offsets, so they are skipped.
    Raises Refused if all snapshots with offsets have expired.
    """
    for snapshot in ancestors(table):
        head = head_of(properties_of(snapshot), table.name()[-1])
        if head is not None:
            return head
    if table.current_snapshot() is None:
        return None
    raise Refused(
        f"table={table.name()[-1]}: no snapshot has the property {PREFIX}offsets any more, because other programs "
        "replaced or expired all of ours; archive into another namespace"
    )


def ancestors(table: Table) -> Iterable[Snapshot]:
    """Return the snapshots from the newest to the oldest one that has not expired."""
    return ancestors_of(table.current_snapshot(), table.metadata)


def properties_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the properties of a snapshot."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def added(table: Table) -> Mapping[str, str]:
    """Return the properties with the commit and the run whose rows were added last to a table of ranges."""
    return next((own for each in ancestors(table) if COMMIT in (own := properties_of(each))), {})


def rows_uri(table: Table, run: str) -> str:
    """Return the file with the rows of one commit in a table of ranges."""
    return f"{table.location()}/{DATA}/{run}.parquet"


def read_rows(table: Table, run: str) -> pa.Table:
    """Return the rows of one commit. Raises JobFailed if their file is missing."""
    with (
        as_job_failed(f"{rows_uri(table, run)} cannot be read"),
        table.io.new_input(rows_uri(table, run)).open() as file,
    ):
        return pq.read_table(file)


def data_files(table: Table) -> Iterator[DataFile]:
    """Yield the data files of the newest snapshot. Raises Refused if another program left delete files."""
    snapshot = table.current_snapshot()
    with as_job_failed(f"table={table.name()[-1]}: the table cannot be read"):
        for manifest in snapshot.manifests(table.io) if snapshot else ():
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if entry.data_file.content != DataFileContent.DATA:
                    raise _has_delete_files(table)
                yield entry.data_file


def _has_delete_files(table: Table) -> Refused:
    return Refused(
        f"table={table.name()[-1]}: another program deleted records by delete files, which are not supported; let that "
        "program rewrite the data files (in Spark: CALL system.rewrite_data_files with delete-file-threshold=1), and "
        "set write.delete.mode=copy-on-write"
    )


def _described(table: Table, file: DataFile) -> ArchivedFile:
    bounds: list[Any] = []
    for name in BOUNDED:
        field = table.schema().find_field(name)
        kind: Any = field.field_type
        for known in (file.lower_bounds, file.upper_bounds):
            raw = (known or {}).get(field.field_id)
            bounds.append(from_bytes(kind, raw) if raw is not None else None)
    return ArchivedFile(file.file_path, file.file_size_in_bytes, file.record_count, *bounds)


def for_spark(uri: str) -> str:
    """Return the URL by which Spark reads a file of a table."""
    return f"s3a:{uri.removeprefix('s3:')}" if urlsplit(uri).scheme == "s3" else uri


@contextmanager
def as_job_failed(what: str, kind: type[JobFailed] = JobFailed) -> Iterator[None]:
    """Raise JobFailed in place of any other exception: catalogs also raise those of their drivers."""
    try:
        yield
    except JobFailed:
        raise
    except Exception as error:
        full = "; the disk is full: free some space, and run the job again" if _is_full(error) else ""
        raise kind(f"{what}: {type(error).__name__}: {error}{full}") from error


def _is_full(error: BaseException) -> bool:
    text: Any = str(error)
    return "[Errno 28]" in text or "disk is full" in text
