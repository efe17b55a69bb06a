"""A Spark session with the connector, for the command line and for notebooks."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from barnabas_jobs.app.connector import S3_JARS, is_of_image, jars, java
from barnabas_jobs.planning.errors import BadOption

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

AUTHENTICATED: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
"""The settings by which Spark's processes prove that they know the secret of the session, and encrypt what they send.

Without them, anybody who reaches the driver's port reads all settings, and runs code in the driver as an executor.
With Kubernetes and `local`, Spark creates the secret itself.
"""
LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""The addresses of a driver without executors, which only its own machine needs to reach.

Spark's file server, from which executors copy jars, listens there, too; it sends files even to clients without the
secret.
"""


def session(master: str, jars_folder: Path, conf: Mapping[str, str], *, s3: bool = False) -> SparkSession:
    """Start a Spark session, or return the running one.

    Raises ConnectorMissing if Java or a jar is missing, and BadOption if `conf` changes a setting of AUTHENTICATED.

    Python workers use the Python interpreter of this process. `s3` adds Hadoop's client for S3.
    """
    _check(conf)
    java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("barnabas-jobs")
    own = {**DEFAULTS, **(LOOPBACK if _is_local(master) else {}), "spark.jars": ",".join(map(str, jars(jars_folder)))}
    if s3:
        own = _with_s3(own, master, jars_folder)
    for name, value in {**own, **conf, **AUTHENTICATED}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _check(conf: Mapping[str, str]) -> None:
    for name, value in AUTHENTICATED.items():
        if conf.get(name, value) != value:
            raise BadOption(
                f"{name} is {conf[name]}; allowed: {value}, because an open driver runs the code of anybody"
            )


def _is_local(master: str) -> bool:
    """True if the driver has no other processes: `local` and `local[N]`, but not `local-cluster[...]`."""
    return master.partition("[")[0] == "local"


def _with_s3(conf: Mapping[str, str], master: str, folder: Path) -> dict[str, str]:
    """Return the settings with the jars for S3.

    If the image has the jars, executors read them there, because copies of 700 MB take long.
    """
    paths = [str(each) for each in jars(folder, S3_JARS)]
    classpath = {"spark.driver.extraClassPath": ":".join(paths)}
    if _is_local(master):
        return {**conf, **classpath}
    if master.startswith("k8s://") and is_of_image(folder):
        return {**conf, **classpath, "spark.executor.extraClassPath": ":".join(paths)}
    return {**conf, "spark.jars": ",".join([conf["spark.jars"], *paths])}
