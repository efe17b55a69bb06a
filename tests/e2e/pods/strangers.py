"""Finds the ports of pods, and what another pod without credentials gets from them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from e2e.pods.castle import Castle
from harness import stranger
from harness.stranger import listening_rows, port_of
from local_kubernetes.kubectl import PATIENTLY

POD: Final = "stranger"
PROGRAM: Final = Path(stranger.__file__).read_text(encoding="utf-8")
TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
LOOPBACK: Final = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
"""The addresses in /proc/net that only the pod itself reaches."""


class Given(NamedTuple):
    """The answers that a stranger gets from a port of a pod; `name` is the name of the port in the pod's manifest."""

    pod: str
    port: int
    name: str
    answers: frozenset[str]

    def __str__(self) -> str:
        return f"{self.pod:40} {self.port:>6}  {self.name:12} {', '.join(sorted(self.answers)) or 'nothing'}"


def given_by_pods(castle: Castle, pods: list[dict[str, Any]], image: str) -> list[Given]:
    """Return what a stranger gets from each port that processes of these pods listen on."""
    with _stranger(castle, image):
        return [given for pod in pods for given in _given_by(castle, pod)]


def _given_by(castle: Castle, pod: dict[str, Any]) -> Iterator[Given]:
    """Yield what a pod gives. Ports are read from the kernel, so that none is missing that no manifest names."""
    name, containers = pod["metadata"]["name"], pod["spec"]["containers"]
    declared = {port["containerPort"]: port["name"] for each in containers for port in each.get("ports", ())}
    program = f"for each in {TABLES}: print(open(each).read())"
    tables = castle.kubectl("exec", name, f"-c={containers[0]['name']}", "--", "python", "-c", program)
    rows = [row for row in listening_rows(tables) if row[1].rpartition(":")[0] not in LOOPBACK]
    ports = [str(port) for port in sorted(set(map(port_of, rows)))]
    said = castle.kubectl("exec", "-i", POD, "--", "python", "-", pod["status"]["podIP"], *ports, stdin=PROGRAM)
    for port, answers in json.loads(said).items():
        yield Given(name, int(port), declared.get(int(port), "not declared"), frozenset(answers))


@contextmanager
def _stranger(castle: Castle, image: str) -> Iterator[None]:
    """Run a pod without any credentials, not even a token of its service account."""
    command = ["python", "-c", "import time; time.sleep(600)"]
    spec = {
        "containers": [{"name": POD, "image": image, "command": command}],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": spec}
    castle.kubectl("apply", "-f-", stdin=json.dumps(pod))
    try:
        castle.kubectl("wait", "--for=condition=Ready", f"pod/{POD}", PATIENTLY)
        yield
    finally:
        castle.kubectl("delete", "pod", POD, "--wait=false")
