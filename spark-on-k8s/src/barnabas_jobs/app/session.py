"""A Spark session with the connector, for the command line and for notebooks."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from barnabas_jobs.app.connector import S3_JARS, is_of_image, jars, java

QUIET_LOG: Final = Path(__file__).with_name("log4j2.properties")
DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The thread that reads the progress needs only the running jobs and a few ended ones.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET_LOG}",
}


def session(master: str, jars_folder: Path, conf: Mapping[str, str], *, s3: bool = False) -> SparkSession:
    """Start a Spark session, or return the running one. Raises ConnectorMissing if Java or a jar is missing.

    Python workers use the Python interpreter of this process. `s3` adds Hadoop's client for S3.
    """
    java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("barnabas-jobs")
    own = {**DEFAULTS, "spark.jars": ",".join(map(str, jars(jars_folder)))}
    if s3:
        own = _with_s3(own, master, jars_folder)
    for name, value in {**own, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _with_s3(conf: Mapping[str, str], master: str, folder: Path) -> dict[str, str]:
    """Return the settings with the jars for S3.

    If the image has the jars, executors read them there, because copies of 700 MB take long.
    """
    paths = [str(each) for each in jars(folder, S3_JARS)]
    classpath = {"spark.driver.extraClassPath": ":".join(paths)}
    if master.startswith("local"):
        return {**conf, **classpath}
    if master.startswith("k8s://") and is_of_image(folder):
        return {**conf, **classpath, "spark.executor.extraClassPath": ":".join(paths)}
    return {**conf, "spark.jars": ",".join([conf["spark.jars"], *paths])}
