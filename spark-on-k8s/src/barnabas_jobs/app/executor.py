"""`barnabas jobs executor`, the command of Spark's executor pods.

Spark passes all arguments in environment variables.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

from barnabas_jobs.app.connector import java
from barnabas_jobs.planning.errors import BadOption

MAIN: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_([0-9]+)")
ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def run_executor() -> None:
    """Replace this process by Spark's executor. Raises BadOption if Spark did not start this pod."""
    folder = local_folder(os.environ)
    command = executor_command(java(), os.environ)
    # The root file system is read-only, so received jars and temporary files go to Spark's local folder.
    os.chdir(folder)
    os.execvpe(command[0], command, {**os.environ, "TMPDIR": folder})


def executor_command(java_program: str, environment: Mapping[str, str]) -> list[str]:
    """Return the command line of the executor's JVM, with the options SPARK_JAVA_OPT_N in the order of N.

    Raises BadOption if an environment variable is missing.
    """
    memory = _given("SPARK_EXECUTOR_MEMORY", environment)
    found = (JAVA_OPTION.fullmatch(name) for name in environment)
    options = sorted((each for each in found if each), key=lambda each: int(each[1]))
    home = _given("SPARK_HOME", environment)
    jars = [environment[name] for name in ("SPARK_CLASSPATH", "SPARK_EXTRA_CLASSPATH") if environment.get(name)]
    return [
        java_program,
        f"-Djava.io.tmpdir={local_folder(environment)}",
        "-XX:-UsePerfData",
        *(environment[each[0]] for each in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join([*jars, f"{home}/jars/*"]),
        MAIN,
        *(word for flag, name in ARGUMENTS.items() for word in (flag, _given(name, environment))),
    ]


def local_folder(environment: Mapping[str, str]) -> str:
    """Return the first of Spark's local folders, for temporary files.

    Raises BadOption if SPARK_LOCAL_DIRS is missing.
    """
    return _given("SPARK_LOCAL_DIRS", environment).split(",", maxsplit=1)[0]


def _given(name: str, environment: Mapping[str, str]) -> str:
    if not environment.get(name):
        raise BadOption(f"the environment has no {name}; only Spark starts executors, in the pods of a running job")
    return environment[name]
