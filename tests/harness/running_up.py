"""`barnabas up` as a person runs it: a process of its own, on manifests and data of its own."""

import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from barnabas_operator.app.child_process import read_status
from barnabas_operator.resources.cluster import Cluster, ClusterStatus
from barnabas_operator.resources.kind import READY, condition_of
from barnabas_operator.resources.topic import Topic, TopicStatus
from harness.deadline import PATIENCE_S, wait_for

CLUSTER = """\
apiVersion: barnabas.dev/v1alpha1
kind: Cluster
metadata:
  name: quickstart
spec:
  storage:
    volumes:
      - id: 0
      - id: 1
  listeners:
    - name: plain
      port: 0
  config:
    group.initial.rebalance.delay.ms: 0
    auto.create.topics.enable: false
"""


def cluster_manifest(brokers: int, **config: object) -> str:
    """Return the manifest of a Cluster with these settings, which have `_` for `.` in their names."""
    lines = "".join(f"    {name.replace('_', '.')}: {value}\n" for name, value in config.items())
    return CLUSTER.replace("spec:\n", f"spec:\n  brokers: {{replicas: {brokers}}}\n", 1) + lines


def topic_manifest(name: str, *lines: str) -> str:
    """Return the manifest of a Topic whose spec has these lines."""
    spec = textwrap.indent("\n".join(lines), "  ")
    return f"apiVersion: barnabas.dev/v1alpha1\nkind: Topic\nmetadata:\n  name: {name}\nspec:\n{spec}\n"


class RunningUp:
    """One `barnabas up`, with its manifests in `folder/manifests` and its data in `folder/data`."""

    def __init__(self, folder: Path) -> None:
        self.manifests = folder / "manifests"
        self.data = folder / "data"
        self.log_path = folder / "up.log"
        self.manifests.mkdir()
        self.write("cluster.yaml", CLUSTER)
        self.options: Sequence[str] = ()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        files = ["-f", str(self.manifests), "--data-dir", str(self.data)]
        return [sys.executable, "-m", "barnabas", "up", *files, "--drift-check-s", "0.5", *self.options]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def write(self, file: str, text: str) -> None:
        (self.manifests / file).write_text(text, encoding="utf-8")

    def start(self) -> None:
        """Start it, and wait until it has reconciled once."""
        begun = len(self.log())
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(lambda: self.ended() or "is up: " in self.log()[begun:])
        wait_for(lambda: self.ended() or self.cluster_reason() == "BrokersReady")
        assert not self.ended(), self.log()

    def ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def close(self) -> None:
        """Stop it if it runs; for the end of a test."""
        if self._process is not None and not self.ended():
            assert self.stop() == 0, self.log()
        assert "Traceback" not in self.log(), self.log()

    def stop(self) -> int:
        """Stop it by SIGTERM; return the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill it by SIGKILL, which leaves its brokers behind."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8") if self.log_path.exists() else ""

    def broker_pid(self, number: int = 0) -> int:
        return int((self.data / f"broker-{number}" / "pid").read_text(encoding="utf-8"))

    def cluster(self) -> Cluster | None:
        known = read_status(self.data) if self.data.exists() else None
        return known.cluster if known else None

    def cluster_status(self) -> ClusterStatus:
        cluster = self.cluster()
        return (cluster.status if cluster else None) or ClusterStatus()

    def cluster_reason(self) -> str | None:
        cluster = self.cluster()
        ready = condition_of(cluster.status.conditions, READY) if cluster and cluster.status else None
        return ready.reason if ready else None

    @property
    def bootstrap(self) -> str:
        cluster = self.cluster()
        assert cluster is not None
        assert cluster.status is not None
        return cluster.status.listeners[0].bootstrap_servers

    def resource(self, name: str) -> Topic | None:
        known = read_status(self.data)
        topics = (*known.topics, *known.removed) if known else ()
        return next((topic for topic in topics if topic.metadata.name == name), None)

    def status(self, name: str) -> TopicStatus:
        topic = self.resource(name)
        return topic.status or TopicStatus() if topic else TopicStatus()

    def reason(self, name: str) -> str | None:
        ready = condition_of(self.status(name).conditions, READY)
        return ready.reason if ready else None

    def message(self, name: str) -> str | None:
        ready = condition_of(self.status(name).conditions, READY)
        return ready.message if ready else None


def alive(pid: int) -> bool:
    """True if the process exists and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return re.search(r"^State:\s+Z", status, re.MULTILINE) is None
