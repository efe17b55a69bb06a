"""Spark's sessions and executors, with its Kafka connector and Hadoop's S3 client.

The jars are pinned by version and checksum, and fetched once by Ivy. `barnabas jobs executor` is the command of Spark's
executor pods; Spark passes all arguments in environment variables.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import quoteattr

import pyspark
from pyspark.sql import SparkSession

from barnabas_jobs.planning.errors import BadOption, JobFailed

FETCH_SECONDS_MAX: Final = 600
CHUNK: Final = 1 << 20


class Jar(NamedTuple):
    """A jar of Maven Central, with its checksum in hexadecimal."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Return the file name of the jar, as in Maven Central."""
        return f"{self.name}-{self.version}.jar"


# These jars fit the version of Spark, and pyspark does not contain them.
JARS: Final = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.2.0",
        "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)

# Only archives in S3 need these large jars. The version of hadoop-aws is that of pyspark's Hadoop.
S3_JARS: Final = (
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        "3.5.0",
        "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
    ),
    Jar(
        "software.amazon.awssdk",
        "bundle",
        "2.35.4",
        "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
    ),
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    ),
)


class ConnectorMissing(JobFailed):
    """A failure because a jar or the Java runtime is missing or wrong; the text gives the reason."""


def default_folder() -> Path:
    """Return the folder of jars that the variable BARNABAS_SPARK_JARS names, or else one in the user's cache."""
    if named := os.environ.get("BARNABAS_SPARK_JARS"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "barnabas" / f"spark-jars-{JARS[0].version}"


def is_of_image(folder: Path) -> bool:
    """True if the folder is part of the image, so that all pods of a run have the jars."""
    return str(folder) == os.environ.get("BARNABAS_SPARK_JARS")


def jars(folder: Path, wanted: Sequence[Jar] = JARS) -> list[Path]:
    """Fetch the jars that the folder lacks, check the checksums of all jars, and return their paths.

    Raises ConnectorMissing if a jar cannot be fetched or has a wrong checksum.
    """
    if lacking := [jar for jar in wanted if not (folder / jar.file).is_file()]:
        _fetch(folder, lacking)
    for jar in wanted:
        found = _sha256(folder / jar.file)
        if found != jar.sha256:
            raise ConnectorMissing(
                f"{folder / jar.file} has the SHA-256 {found}, but must have {jar.sha256}. "
                "Remove the file; the next run fetches it again."
            )
    return [folder / jar.file for jar in wanted]


def java() -> str:
    """Return the path of the Java program. Raises ConnectorMissing if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if found is None:
        raise ConnectorMissing(
            "the program `java` is not installed; Spark needs Java 17 or later (on Debian the package"
            " default-jre-headless)"
        )
    return found


def _fetch(folder: Path, wanted: Sequence[Jar]) -> None:
    """Fetch jars into a temporary folder, and rename them into the folder once all are complete."""
    with _beside(folder) as partial:
        module = partial / "ivy.xml"
        module.write_text(_module(wanted), encoding="utf-8")
        spark_jars = Path(pyspark.__file__).parent / "jars" / "*"
        command = [java(), "-cp", str(spark_jars), "org.apache.ivy.Main", "-ivy", str(module), "-warn"]
        target = ["-cache", str(partial / "cache"), "-retrieve", f"{partial}/[artifact]-[revision].[ext]"]
        try:
            done = subprocess.run(
                [*command, *target], capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX
            )
        except subprocess.TimeoutExpired as error:
            why = f"Ivy could not fetch the jars from Maven Central within {FETCH_SECONDS_MAX} s"
            raise ConnectorMissing(why) from error
        lacking = [jar.file for jar in wanted if not (partial / jar.file).is_file()]
        if done.returncode != 0 or lacking:
            output = (done.stdout + done.stderr).strip()[-1000:]
            raise ConnectorMissing(
                f"Ivy could not fetch {', '.join(lacking) or 'the jars'} from Maven Central: {output}"
            )
        for jar in wanted:
            (partial / jar.file).replace(folder / jar.file)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
            yield Path(partial)
    except OSError as error:
        why = f"--jars {folder}: the folder cannot be written: {error.strerror}"
        if is_of_image(folder):
            why += "; for archives in S3, build the image with --build-arg S3=yes"
        raise ConnectorMissing(why) from error


def _module(wanted: Sequence[Jar]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.name)} rev={quoteattr(jar.version)} "
        'transitive="false" conf="default->master"/>'
        for jar in wanted
    )
    return (
        '<ivy-module version="2.0"><info organisation="dev.barnabas" module="jobs"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


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
S3_RETRIES: Final = {"spark.hadoop.fs.s3a.retry.throttle.limit": "12"}
"""The retries of a request that a bucket answers with 503: they end after about seven minutes.

Hadoop waits 100 ms before the first retry, and twice as long before each other one. Its default of 20 retries would let
a job wait for more than a day, even if the bucket has long worked again.
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
    conf = {**S3_RETRIES, **conf}
    if _is_local(master):
        return {**conf, **classpath}
    if master.startswith("k8s://") and is_of_image(folder):
        return {**conf, **classpath, "spark.executor.extraClassPath": ":".join(paths)}
    return {**conf, "spark.jars": ",".join([conf["spark.jars"], *paths])}


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


if __name__ == "__main__":  # The build of the image runs this module.
    jars(default_folder(), (*JARS, *S3_JARS) if os.environ.get("S3") else JARS)
