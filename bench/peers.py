"""The single brokers that are measured. Each kind prepares a `ServerProcess` in its own folder."""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Final

from bench.clients.job import ROOT, PartMissing
from harness import apache_kafka
from harness.kafka_jars import JarsMissing, jars_folder
from harness.server_process import ServerProcess, free_port

# These are the same for every broker: nothing expires during a run, and the pages of deleted topics are free soon.
SETTINGS: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
BEFORE: Final = "before"
"""The broker of an earlier commit."""
SOURCES: Final = ("broker/src", "operator/src")
# The prototype overwrites the first 256 MiB of each log repeatedly, as its own notes say to run it.
PROTOTYPE_WRAP_BYTES: Final = 256 * 1024 * 1024
PROTOTYPE_SLICE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class PeerKind:
    """`prepare(folder)` gives a server that is not running; raises PartMissing with the reason.

    A peer without its own topics creates a topic on its first use, with the number of partitions in its name.
    """

    name: str
    title: str
    prepare: Callable[[Path], ServerProcess]
    version: Callable[[], str]
    has_topics: bool = True


def prepare_barnabas(
    folder: Path, environment: Mapping[str, str] | None = None, properties: Mapping[str, str] | None = None
) -> ServerProcess:
    """Return a broker that is not running; `properties` add to its settings, `listeners` to its PLAINTEXT listener."""
    folder.mkdir(parents=True, exist_ok=True)
    port, more = free_port(), dict(properties or {})
    listeners = [f"PLAINTEXT://127.0.0.1:{port}", *filter(None, [more.pop("listeners", "")])]
    settings = {
        **SETTINGS,
        **more,
        "listeners": ",".join(listeners),
        "log.dirs": str(folder / "logs"),
        "metadata.store": f"sqlite:///{folder / 'metadata.sqlite'}",
    }
    config = folder / "server.properties"
    apache_kafka.write_properties(config, settings)
    command = [sys.executable, "-m", "barnabas", "broker", str(config)]
    return ServerProcess(command, port, folder / "server.log", environment)


def sources_of(commit: str, folder: Path) -> Path:
    """Write the sources of that commit to `folder`, and return their folder. Raises PartMissing."""
    folder.mkdir(parents=True)
    packed = folder / "sources.tar"
    command = ["git", "archive", "--output", str(packed), commit, *SOURCES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise PartMissing(f"no sources of {commit}: {done.stderr.strip()}")
    with tarfile.open(packed) as sources:
        sources.extractall(folder, filter="data")
    return folder


def _before(folder: Path, sources: Path | None) -> ServerProcess:
    if sources is None:
        raise PartMissing("no commit to compare with was named (--before COMMIT)")
    return prepare_barnabas(folder, {"PYTHONPATH": os.pathsep.join(str(sources / each) for each in SOURCES)})


def _kafka(folder: Path) -> ServerProcess:
    try:
        return apache_kafka.prepare(folder, properties=SETTINGS)
    except JarsMissing as missing:
        raise PartMissing(str(missing)) from None


def _kafka_version() -> str:
    try:
        names = [jar.name for jar in jars_folder().glob("kafka_2.13-*.jar")]
    except JarsMissing as missing:
        return f"not there: {missing}"
    found = re.search(r"-([\d.]+)\.jar", names[0]) if names else None
    return found.group(1) if found else "unknown"


def _prototype(source: Path, folder: Path, wrap: bool) -> ServerProcess:
    script = source / "srv.py"
    if not script.exists():
        raise PartMissing(f"there is no prototype in {source} (--prototype DIR or PROTOTYPE_DIR)")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    # Design F: an asyncio loop with raw non-blocking sockets, and sendfile for fetched records.
    options = {"-d": "F", "-f": "sendfile", "-p": port, "--slice": PROTOTYPE_SLICE_BYTES, "--dir": folder / "logs"}
    command = [sys.executable, str(script), *(str(word) for pair in options.items() for word in pair)]
    environment = {"WRAP": str(PROTOTYPE_WRAP_BYTES)} if wrap else {}
    return ServerProcess(command, port, folder / "server.log", environment)


def _prototype_kind(name: str, title: str, source: Path, *, wrap: bool) -> PeerKind:
    return PeerKind(name, title, lambda folder: _prototype(source, folder, wrap), lambda: "-", has_topics=False)


def peer_kinds(prototype: Path, before: Path | None = None) -> dict[str, PeerKind]:
    """Return all kinds by name; `before` has the sources of an earlier commit."""
    kinds = (
        PeerKind("barnabas", "Barnabas", prepare_barnabas, lambda: package_version("barnabas")),
        PeerKind(BEFORE, "the commit before", partial(_before, sources=before), lambda: package_version("barnabas")),
        PeerKind("kafka", "Apache Kafka", _kafka, _kafka_version),
        _prototype_kind("prototype", "prototype F", prototype, wrap=True),
        _prototype_kind("appending", "prototype F, appending", prototype, wrap=False),
    )
    return {kind.name: kind for kind in kinds}
