"""Runs our broker as a child process, and reads its pages over HTTP and its memory."""

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.apache_kafka import write_properties
from harness.server_process import HERE, Place, ServerProcess, free_port

BARNABAS: Final = ("-m", "barnabas")
"""The arguments of Python that start `barnabas`."""


def prepare_barnabas(
    folder: Path,
    properties: Mapping[str, str],
    place: Place = HERE,
    listeners: Sequence[str] = (),
    program: Sequence[str] = BARNABAS,
) -> ServerProcess:
    """Return a broker, not started: its files are in `folder`, its log dir is `logs`, its output is in `server.log`.

    It has these listeners beside its PLAINTEXT.
    """
    port = free_port()
    settings = {
        "broker.id": "1",
        "listeners": ",".join([f"PLAINTEXT://{place.host}:{port}", *listeners]),
        "log.dirs": str(folder / "logs"),
        "metadata.store": f"sqlite:///{folder / 'metadata.sqlite'}",
        **properties,
    }
    write_properties(folder / "server.properties", settings)
    command = [sys.executable, *program, "broker", str(folder / "server.properties")]
    return ServerProcess(command, port, folder / "server.log", place=place)


def page(http_port: int, path: str) -> tuple[int, str]:
    """Return status and text of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric(http_port: int, name: str) -> float | None:
    """Return the value of a metric without labels; None if the page does not have it."""
    found = re.search(rf"^{name} (\S+)$", page(http_port, "/metrics")[1], re.MULTILINE)
    return float(found[1]) if found else None


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds now."""
    return _memory_of(pid, "VmRSS")


def peak_resident_bytes(pid: int) -> int:
    """Return the most memory that a process has held."""
    return _memory_of(pid, "VmHWM")


def _memory_of(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None, f"process {pid} has ended"
    return int(found[1]) * 1024
