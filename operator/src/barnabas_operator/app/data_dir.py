"""The data directory of `barnabas up`: one process holds it; brokers' folders and what is remembered live in it."""

import fcntl
import os
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Final, TextIO

import msgspec
from ruamel.yaml import YAML

from barnabas_operator.planning.memory import Wanted
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.manifests import parse_manifests
from barnabas_operator.resources.topic import Topic

DEFAULT: Final = Path(".barnabas")
STATUS_FILE: Final = "status.yaml"
LOCK_FILE: Final = "lock"


class DataDirHeld(Exception):
    """Another process has it; the message says which."""


class MemoryBroken(Exception):
    """The status file cannot be read; the message says why."""


class DataDir:
    """A folder, made if need be, and locked for this process until `release`."""

    def __init__(self, path: Path) -> None:
        """Raises DataDirHeld; OSError where the folder cannot be made."""
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self.path / LOCK_FILE)

    def release(self) -> None:
        """Lets another process have it. The lock file stays: removing it would let two in."""
        self._lock.close()

    @property
    def metadata_file(self) -> Path:
        """The brokers' common metadata."""
        return self.path / "metadata.sqlite"

    def broker_folder(self, broker_id: int) -> Path:
        """Settings, log and volumes of one broker."""
        return self.path / f"broker-{broker_id}"

    def write_status(self, wanted: Wanted) -> None:
        """Everything that is to be remembered, as people and scripts may read it: the resources with their status."""
        text = resources_text([wanted.cluster, *wanted.topics, *wanted.removed])
        replace_file(self.path / STATUS_FILE, text)

    def read_status(self) -> Wanted | None:
        """What was remembered; None where nothing was. Raises MemoryBroken."""
        return read_status(self.path)


def _take_lock(path: Path) -> TextIO:
    lock = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise DataDirHeld(f"{path.parent} is held by another barnabas up, process {holder}") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def read_status(path: Path) -> Wanted | None:
    """What the last `barnabas up` in this data directory wrote; None where there is nothing. Raises MemoryBroken."""
    file = path / STATUS_FILE
    if not file.exists():
        return None
    manifests = parse_manifests({str(file): file.read_text(encoding="utf-8")})
    clusters = manifests.of_kind(Cluster)
    if manifests.errors or len(clusters) != 1:
        raise MemoryBroken("; ".join(map(str, manifests.errors)) or f"{file} does not hold exactly one Cluster")
    return Wanted(clusters[0], manifests.of_kind(Topic), ())


def resources_text(resources: Iterable[Cluster | Topic]) -> str:
    """The resources as YAML documents."""
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    stream = StringIO()
    writer.dump_all([msgspec.to_builtins(resource) for resource in resources], stream)
    return stream.getvalue()


def replace_file(path: Path, text: str) -> None:
    """Readers see the old text or the new one, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
