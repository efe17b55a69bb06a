"""Catalogs on servers: Apache Iceberg's REST catalog, PostgreSQL, and AWS Glue by moto.

`make rest-catalog CATALOG=/FOLDER` runs the REST catalog by hand, for tables below that folder, until Ctrl-C.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from barnabas_jobs.app.connector import Jar, default_folder, jars
from harness.deadline import wait_for
from harness.require import require
from harness.server_process import bound_to_us

CATALOG_JARS: Final = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.50.3.0",
        "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    ),
)
SERVER: Final = Path(__file__).with_name("rest_catalog") / "RestCatalog.java"
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx256m")
FILES: Final = "org.apache.iceberg.hadoop.HadoopFileIO"


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Run the REST catalog with its database in `folder`, for tables in local folders, and yield its address."""
    require(shutil.which("java"), "the program `java` is not installed")
    iceberg = jars(default_folder(), CATALOG_JARS)
    spark = Path(pyspark.__file__).parent / "jars"
    paths = [*iceberg, *spark.glob("hadoop-client-*.jar"), *spark.glob("*slf4j*.jar"), *spark.glob("log4j-*.jar")]
    own = {"uri": f"jdbc:sqlite:{folder}/rest.db", "warehouse": folder.as_uri(), "io-impl": FILES}
    words = ["java", *SHORT_LIVED, "-cp", ":".join(map(str, paths)), str(SERVER)]
    command = bound_to_us([*words, *(f"{name}={value}" for name, value in own.items())])
    with (
        (folder / "rest.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as server,
    ):
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip().decode()
            assert port, (folder / "rest.log").read_text(encoding="utf-8")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


class Postgresql:
    """PostgreSQL with one database in a folder that its user must reach; only a socket in that folder reaches it."""

    def __init__(self, folder: Path) -> None:
        require(shutil.which("initdb") and shutil.which("postgres"), "PostgreSQL is not installed")
        self.uri = f"postgresql://archive@/postgres?host={folder}"
        self._folder = folder
        self._user = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses root.
        shutil.chown(folder, self._user or os.geteuid())
        self._started("initdb", "-N", "-E", "UTF8", "-A", "trust", "-U", "archive", "-D", f"{folder}/data").wait()

    def start(self) -> None:
        """Start the server, and return when it answers."""
        data = f"{self._folder}/data"
        self._server = self._started("postgres", "-F", "-D", data, "-k", str(self._folder), "-c", "listen_addresses=")
        asked = ["pg_isready", "-q", "-h", str(self._folder)]
        wait_for(lambda: subprocess.run(asked, check=False).returncode == 0)

    def kill(self) -> None:
        """End the server as a crash does: it recovers when it starts again."""
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait()

    def _started(self, *words: str) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        with (self._folder.parent / f"{self._folder.name}.log").open("ab") as log:
            return subprocess.Popen(
                bound_to_us(words), stdout=log, stderr=log, user=self._user, cwd="/", env=environment
            )


@contextmanager
def postgresql() -> Iterator[Postgresql]:
    """Run PostgreSQL in a folder that its user reaches, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="postgresql-") as name:
        folder = Path(name) / "server"
        folder.mkdir()
        folder.parent.chmod(0o755)
        server = Postgresql(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


if __name__ == "__main__":
    place = Path(sys.argv[1]).absolute()
    place.mkdir(parents=True, exist_ok=True)
    with rest_catalog(place) as address:
        print(address, flush=True)
        signal.pause()
