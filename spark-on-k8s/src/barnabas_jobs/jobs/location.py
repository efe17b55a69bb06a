"""The places that the options of jobs name: the folder or bucket of an archive, and the folder of a report.

An archive's files in an S3 bucket, through Hadoop's client. A bucket has no locks and no links, so a file is added
by a conditional put (`If-None-Match: *`), which the bucket itself accepts or rejects atomically.
"""

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_tables import ArchiveTables
from barnabas_jobs.files.store import LocalFolder, Store
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.options import ArchiveOptions, in_bucket
from barnabas_jobs.spark.failures import spark_failures

OF_RUN: Final = ".run"
"""The file whose content is the name of the run that makes the report.

The run locks the file while it writes the report.
"""
BEFORE: Final = ".before"
"""The subfolder of a new report that holds the report of an earlier attempt of the run.

The subfolder is removed once the new report is complete.
"""


@contextmanager
def new_report(path: str, run: str | None) -> Iterator[Path]:
    """Yield a temporary folder, which gets the name `path` when the block ends.

    Raises JobFailed if another run has made a report at `path`, or is writing one. The report of an earlier attempt of
    the same run, whose driver was killed before it could report its end, is replaced once the new report is complete.
    """
    final = Path(path).absolute()
    try:
        with _folder_beside(final) as partial:
            if final.exists() and not _is_of(run, final):
                raise JobFailed(f"report={final} exists already; name another folder, or remove this folder")
            _empty(partial)
            (partial / OF_RUN).write_text(run or "", encoding="utf-8")
            yield partial
            if _is_of(run, final):
                # A rename is atomic; an interrupted removal might leave a part of the report without the file OF_RUN.
                final.rename(partial / BEFORE)
            partial.rename(final)
            shutil.rmtree(final / BEFORE, ignore_errors=True)
        if run is None:
            (final / OF_RUN).unlink()
    except OSError as error:
        raise JobFailed(f"report={final} cannot be written: {error.strerror}") from error


@contextmanager
def _folder_beside(final: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the final folder. If the block fails, remove the temporary folder.

    This process locks the temporary folder while the block runs. Raises JobFailed if another run holds the lock.
    """
    partial = final.with_name(f".{final.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    with (partial / OF_RUN).open("a") as lock:
        if not _is_ours(lock, partial / OF_RUN):
            raise JobFailed(
                f"report={final}: another run is writing this report; wait until that run has ended, or name another"
                " folder"
            )
        try:
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _is_ours(lock: IO[str], path: Path) -> bool:
    """True if no other process holds the lock on the open file, and the file at `path` is still this file.

    Another process that held the lock until now may have removed or renamed the folder of the file.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # Without file locks, users must not write a report with two runs at once.
    return path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())


def _empty(partial: Path) -> None:
    """Remove the files that a killed driver left, but keep the file OF_RUN, which this process has locked."""
    for each in partial.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name != OF_RUN:
            each.unlink()


def _is_of(run: str | None, report: Path) -> bool:
    """True if an attempt of this run made the report."""
    try:
        return (report / OF_RUN).read_text(encoding="utf-8") == run
    except (FileNotFoundError, NotADirectoryError):
        return False


CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
S3_PROPERTIES: Final = {
    "s3.endpoint": "endpoint",
    "s3.region": "endpoint.region",
    "s3.access-key-id": "access.key",
    "s3.secret-access-key": "secret.key",
    "s3.session-token": "session.token",
}
"""The names of pyiceberg's properties, and those of Hadoop's client without `fs.s3a.`."""


class ObjectStore:
    """A folder in a bucket with the files of an archive, or with the plans of restores.

    File names are relative to `s3a://BUCKET/FOLDER`. Failures raise JobFailed. `option` is the name of the job's option
    that gives the folder.
    """

    def __init__(self, spark: SparkSession, location: str, option: str = "archive") -> None:
        self.location = location.rstrip("/")
        self._option = option
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop
        with self._as_job_failed("open"):
            root: Any = self._hadoop.fs.Path(self.location)
            self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())
            self._prefix = f"{root}/"

    def __str__(self) -> str:
        return self.location

    def url(self, name: str) -> str:
        """Return the URL by which Spark reads and writes the file or folder."""
        return f"{self.location}/{name}"

    def make(self, *_: str) -> None:
        """Check that the bucket can be reached; a bucket needs no folders."""
        with self._as_job_failed("reach"):
            self._files.exists(self._path(""))

    def check_add(self) -> None:
        """Raise JobFailed unless the bucket has conditional puts, without which two runs could both add a file."""
        name = f".{uuid.uuid4().hex[:12]}.probe"
        try:
            if self.add(name, b"one") and self.add(name, b"other"):
                raise JobFailed(
                    f"{self._option}={self}: the server has overwritten an object in spite of `If-None-Match: *`, so "
                    "two runs could overwrite each other's files; use a server with conditional puts"
                )
        finally:
            self.remove(name)

    @contextmanager
    def locked(self, *_: str) -> Iterator[None]:
        """Do nothing, because a bucket has no locks: of two writers, the slower one fails at its next commit."""
        yield

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, or an empty list if the folder does not exist."""
        with self._as_job_failed(f"list {folder}"):
            path = self._path(folder)
            return sorted(each.getPath().getName() for each in self._files.listStatus(path)) if self._is(path) else []

    def read(self, name: str) -> bytes | None:
        """Return the content of the object, or None if there is no such object."""
        with self._as_job_failed(f"read {name}"):
            try:
                stream = self._files.open(self._path(name))
            except Py4JJavaError as error:
                if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
                    return None
                raise
            try:
                return bytes(self._hadoop.io.IOUtils.readFullyToByteArray(stream))
            finally:
                stream.close()

    def add(self, name: str, content: bytes) -> bool:
        """Add an object atomically; return False if an object with this name and other content exists.

        An existing object with the same content counts as added, because Hadoop's client may have repeated a request
        whose response was lost.
        """
        try:
            self._write(self._files.createFile(self._path(name)).opt(CONDITIONAL, "true").build(), content)
        except Py4JJavaError:
            found = self.read(name)
            if found is None:
                with self._as_job_failed(f"write {name}"):
                    raise
            return found == content
        return True

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size in bytes of each object below the folder."""
        return {name: file.getLen() for name, file in self._below(folder)}

    def older(self, folder: str, before_ms: int) -> list[str]:
        """Return the names of the objects below the folder that were last changed before a time in ms since 1970."""
        return [name for name, file in self._below(folder) if file.getModificationTime() < before_ms]

    def _below(self, folder: str) -> list[tuple[str, Any]]:
        with self._as_job_failed(f"list {folder}"):
            path = self._path(folder)
            found = list[tuple[str, Any]]()
            files = self._files.listFiles(path, True) if self._is(path) else None
            while files is not None and files.hasNext():
                file = files.next()
                found.append((file.getPath().toString().removeprefix(self._prefix), file))
            return sorted(found, key=lambda each: each[0])

    def sync(self, _: Iterable[str]) -> None:
        """Do nothing, because an object is durable as soon as the bucket has accepted it."""

    def remove(self, folder: str) -> None:
        """Delete the object or folder recursively."""
        with self._as_job_failed(f"remove {folder}"):
            self._files.delete(self._path(folder), True)

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(self.url(name) if name else self.location)

    def _is(self, path: Any) -> bool:
        return bool(self._files.exists(path))

    def _write(self, stream: Any, content: bytes) -> None:
        stream.write(content)
        stream.close()

    def _as_job_failed(self, doing: str) -> Any:
        return spark_failures(f"{self._option}={self.location}: cannot {doing}")


def for_tables(spark: SparkSession, location: str) -> dict[str, str]:
    """Return the properties by which pyiceberg reaches the bucket of a location, from those of Hadoop's client."""
    hadoop: Any = spark._jsc.hadoopConfiguration()
    bucket = location.removeprefix("s3a://").partition("/")[0]

    def value(name: str) -> str | None:
        found = hadoop.get(f"fs.s3a.bucket.{bucket}.{name}") or hadoop.get(f"fs.s3a.{name}")
        return str(found) if found else None

    found = {own: given for own, name in S3_PROPERTIES.items() if (given := value(name))}
    if "s3.endpoint" in found and "://" not in found["s3.endpoint"]:
        scheme = "http" if value("connection.ssl.enabled") == "false" else "https"
        found["s3.endpoint"] = f"{scheme}://{found['s3.endpoint']}"
    style = {"true": "false", "false": "true"}.get(value("path.style.access") or "")
    return found | ({"s3.force-virtual-addressing": style} if style else {})


RUN: Final = "spark.barnabas.run"
"""The Spark setting with the name of the run; the program that starts drivers gives it to all attempts of a run."""


def archive_at(spark: SparkSession, options: ArchiveOptions) -> ArchiveTables:
    """Return the tables of the archive that the options name.

    Tables in a bucket are read and written with the keys, endpoint and region that Spark has for the bucket, unless the
    option `catalog` has others. Raises JobFailed if the bucket cannot be reached.
    """
    location = options.archive
    given = {**(for_tables(spark, location) if in_bucket(location) else {}), **options.catalog}
    return ArchiveTables(location, given, options.namespace, store_at(spark, location))


def store_at(spark: SparkSession, location: str, option: str = "archive") -> Store:
    """Return the local folder at a path, or the object store at a URL.

    Raises JobFailed if the bucket of the URL cannot be reached.
    """
    return ObjectStore(spark, location, option) if in_bucket(location) else LocalFolder(location, option)


class Report(NamedTuple):
    """A report that a job writes: tables as Parquet, the result as JSON, and an HTML page."""

    spark: SparkSession
    folder: Path

    def add_table(self, name: str, schema: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write a table to one Parquet file."""
        table = self.spark.createDataFrame(list(rows), schema).coalesce(1)
        table.write.parquet(str(self.folder / f"{name}.parquet"))

    def add_result(self, name: str, result: msgspec.Struct, page: str) -> None:
        """Write the result of the job, and its HTML page."""
        (self.folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
        (self.folder / f"{name}.html").write_text(page, encoding="utf-8")


@contextmanager
def report_at(spark: SparkSession, path: str) -> Iterator[Report]:
    """Yield a report that appears at `path` when the block ends. Raises JobFailed if it cannot be written there."""
    with new_report(path, spark.conf.get(RUN, None) or None) as folder:
        yield Report(spark, folder)
