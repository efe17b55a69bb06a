"""An archive's files in an S3 bucket, through Hadoop's client.

A bucket has no locks and no links, so a file is added by a conditional put (`If-None-Match: *`), which the bucket
itself accepts or rejects atomically.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.spark.failures import spark_failures

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
