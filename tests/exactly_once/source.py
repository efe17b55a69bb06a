"""Kafka Connect's exactly-once source (KIP-618) writes numbers while brokers and the worker are killed."""

import json
import shutil
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Final

from exactly_once.programs import Program
from exactly_once.reader import Reader
from harness.apache_kafka import write_properties
from harness.cluster import BarnabasCluster
from harness.kafka_jars import jars_folder, java_command
from harness.kept_builds import kept
from harness.server_process import free_port

SOURCES: Final = Path(__file__).parent / "connect"
CONNECTOR: Final = SOURCES / "Numbers.java"
TOPIC: Final = "numbers"
REST_SECONDS_MAX: Final = 10.0
REPLICATION: Final = {f"{name}.storage.replication.factor": "3" for name in ("config", "offset", "status")}
CONVERTERS: Final = dict.fromkeys(
    ("key.converter", "value.converter"), "org.apache.kafka.connect.storage.StringConverter"
)


def classes() -> Path:
    """Return the folder of the compiled connector."""

    def build(target: Path) -> None:
        subprocess.run(["javac", "-d", str(target), "-cp", f"{jars_folder()}/*", str(CONNECTOR)], check=True)
        shutil.copytree(SOURCES / "META-INF", target / "META-INF")

    return kept("numbers-connector", [CONNECTOR, *SOURCES.glob("META-INF/services/*")], build)


def worker(cluster: BarnabasCluster, port: int) -> Program:
    """Return a worker of Kafka Connect, with its REST API at the port."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "connect",
        "exactly.once.source.support": "enabled",
        "listeners": f"http://127.0.0.1:{port}",
        "session.timeout.ms": "10000",
        **{f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")},
        **REPLICATION,
        **CONVERTERS,
    }
    properties = cluster.folder / "connect.properties"
    write_properties(properties, settings)
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
    main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
    return Program(
        "connect", java_command(main_class, str(properties), options=options, before=[classes()]), cluster.folder
    )


def ask_for(port: int, count: int) -> bool:
    """True if the worker has accepted the connector."""
    wanted = {"connector.class": "Numbers", "topic": TOPIC, "count": str(count), "tasks.max": "1"}
    body, headers = json.dumps(wanted).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/connectors/numbers/config", body, headers, method="PUT")
    with suppress(OSError), urllib.request.urlopen(request, timeout=REST_SECONDS_MAX) as answer:
        return answer.status in (200, 201)
    return False


class Source:
    """See `faults.Proof`."""

    def __init__(self, cluster: BarnabasCluster, count: int) -> None:
        cluster.create_topic(TOPIC, 1, 3)
        self._port, self._count, self._is_asked = free_port(), count, False
        self.programs = [worker(cluster, self._port)]
        self._reader = Reader(cluster.bootstrap, TOPIC, 1)

    def go_on(self) -> int:
        self._is_asked = self._is_asked or ask_for(self._port, self._count)
        self._reader.read_on(1.0)
        print(f"source: {self._reader.count} of {self._count} numbers of Connect", flush=True)
        return self._reader.count

    def is_done(self) -> bool:
        return self._reader.count >= self._count

    def extend(self) -> None:
        """Do nothing: the connector has a fixed number of records."""

    def problems(self) -> list[str]:
        return self._reader.differences(self._count)
