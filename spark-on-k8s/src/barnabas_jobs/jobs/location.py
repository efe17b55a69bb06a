"""The choice of the store of an archive by its name."""

from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_folder import ArchiveFolder, Store
from barnabas_jobs.files.local_folder import LocalFolder
from barnabas_jobs.planning.options import in_bucket
from barnabas_jobs.spark.object_store import ObjectStore


def archive_at(spark: SparkSession, location: str) -> ArchiveFolder:
    """An archive in a folder of this machine, or in a bucket. Raises JobFailed where that cannot be reached."""
    return ArchiveFolder(store_at(spark, location))


def store_at(spark: SparkSession, location: str, option: str = "archive") -> Store:
    """The place that an option names. Raises JobFailed where it cannot be reached."""
    return ObjectStore(spark, location, option) if in_bucket(location) else LocalFolder(location, option)
