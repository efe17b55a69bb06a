"""The choice between a local folder and a bucket for an archive."""

from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_folder import ArchiveFolder, Store
from barnabas_jobs.files.local_folder import LocalFolder
from barnabas_jobs.planning.options import in_bucket
from barnabas_jobs.spark.object_store import ObjectStore


def archive_at(spark: SparkSession, location: str) -> ArchiveFolder:
    """Return the archive at a path or URL. Raises JobFailed if the bucket of the URL cannot be reached."""
    return ArchiveFolder(store_at(spark, location))


def store_at(spark: SparkSession, location: str, option: str = "archive") -> Store:
    """Return the local folder at a path, or the object store at a URL.

    Raises JobFailed if the bucket of the URL cannot be reached.
    """
    return ObjectStore(spark, location, option) if in_bucket(location) else LocalFolder(location, option)
