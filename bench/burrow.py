"""LinkedIn's Burrow from Debian's package, with a Kafka that it understands, and a ZooKeeper.

Burrow 1.2.1 requests log ends by version 0 of ListOffsets, which neither Kafka 4 nor our brokers have. It
cannot read the commits of Kafka 4 either (version 4 of their value). Kafka 3.9 has and writes older versions.
"""

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from harness.apache_kafka import CLUSTER_ID, SINGLE_NODE, Node
from harness.deadline import wait_for
from harness.kafka_jars import JarsMissing, jars_folder
from harness.server_process import ServerProcess, free_port
from local_kubernetes.debian_package import programs_of

POM: Final = Path(__file__).parent / "clients" / "burrow" / "pom.xml"
ZOOKEEPER: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
ANSWER_S: Final = 60.0
CONFIG: Final = """
[general]
pidfile = "{folder}/burrow.pid"
[logging]
filename = "{folder}/burrow.log"
level = "warn"
[zookeeper]
servers = ["127.0.0.1:{zookeeper}"]
timeout = 30
root-path = "/burrow"
[client-profile.any]
client-id = "burrow"
kafka-version = "2.0.0"
[cluster.local]
class-name = "kafka"
servers = ["{bootstrap}"]
client-profile = "any"
topic-refresh = 60
offset-refresh = {interval_s}
[consumer.local]
class-name = "kafka"
cluster = "local"
servers = ["{bootstrap}"]
client-profile = "any"
[httpserver.default]
address = "127.0.0.1:{port}"
"""


def old_kafka(folder: Path) -> ServerProcess:
    """Return one node that is not running. Raises JarsMissing."""
    node = Node(folder, 1, free_port(), free_port())
    node.write_config([node.voter], SINGLE_NODE)
    form = ("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(node.config))
    subprocess.run(_java("128M", *form), check=True, capture_output=True)
    return ServerProcess(_java("512M", "kafka.Kafka", str(node.config)), node.port, folder / "server.log")


def _java(heap: str, *words: str) -> list[str]:
    if shutil.which("java") is None:
        raise JarsMissing("java is not on the machine")
    return ["java", f"-Xmx{heap}", "-cp", f"{jars_folder(POM, 'burrow')}/*", *words]


class Burrow:
    """Burrow requests log ends each `interval_s`, and reads all commits. Raises CannotStart or JarsMissing."""

    def __init__(self, bootstrap: str, folder: Path, interval_s: int) -> None:
        zookeeper, port = free_port(), free_port()
        command = _java("64M", ZOOKEEPER, str(zookeeper), str(folder / "zookeeper"))
        self._zookeeper = ServerProcess(command, zookeeper, folder / "zookeeper.log")
        values = {"folder": folder, "zookeeper": zookeeper, "bootstrap": bootstrap}
        config = CONFIG.format(**values, interval_s=interval_s, port=port)
        (folder / "burrow.toml").write_text(config, encoding="utf-8")
        program = [str(programs_of("burrow") / "Burrow"), "--config-dir", str(folder)]
        self.process = ServerProcess(program, port, folder / "burrow.out")

    def start(self) -> None:
        self._zookeeper.start()
        wait_for(self._zookeeper_serves, seconds_max=ANSWER_S)
        self.process.start()

    def lags(self) -> dict[str, int]:
        """Return the lag of each group, by one request for each: Burrow has no page of all groups."""
        return {group: self._lag(group) for group in self._get("").get("consumers") or ()}

    def read(self) -> object:
        """Read all lags as an exporter for Prometheus does."""
        return self.lags()

    def close(self) -> None:
        self.process.close()
        self._zookeeper.close()

    def _zookeeper_serves(self) -> bool:
        """True if ZooKeeper serves: its port is open before that, and Burrow ends if it is refused."""
        with socket.create_connection(("127.0.0.1", self._zookeeper.port), timeout=ANSWER_S) as asked:
            asked.sendall(b"srvr")
            return asked.makefile("rb").readline().startswith(b"Zookeeper version")

    def _lag(self, group: str) -> int:
        return int(self._get(f"/{group}/lag")["status"]["totallag"])

    def _get(self, path: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.process.port}/v3/kafka/local/consumer{path}"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError:  # Burrow does not know the cluster yet.
            return {}
        return found
