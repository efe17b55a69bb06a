"""The work of an API server and its etcd, from their own counters: requests, writes, bytes, CPU seconds."""

import re
import urllib.request
from dataclasses import dataclass, fields
from typing import Final

from local_kubernetes.control_plane import ControlPlane

_SAMPLE: Final = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
RESOURCES: Final = ("statedocuments", "leases")
READS: Final = ("GET", "LIST")
WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class Figures:
    """The work since the servers started, or between two moments. Writes and reads are requests of brokers."""

    document_writes: float = 0
    lease_writes: float = 0
    document_reads: float = 0
    lease_reads: float = 0
    etcd_bytes_in: float = 0
    """The bytes that the API server sent to etcd: nearly all of them are written."""
    watch_events: float = 0
    api_server_cpu_s: float = 0
    etcd_cpu_s: float = 0

    def since(self, before: "Figures") -> "Figures":
        """Return the difference."""
        return Figures(*(getattr(self, each.name) - getattr(before, each.name) for each in fields(self)))


def read_figures(plane: ControlPlane) -> Figures:
    """Return the figures of now."""
    api, etcd = plane.requests.text("/metrics"), _fetch(f"{plane.etcd_url}/metrics")
    requests = [(labels, value) for name, labels, value in _samples(api) if name == "apiserver_request_total"]

    def count(resource: str, verbs: tuple[str, ...]) -> float:
        return sum(value for labels, value in requests if labels["resource"] == resource and labels["verb"] in verbs)

    documents, leases = RESOURCES
    return Figures(
        count(documents, WRITES),
        count(leases, WRITES),
        count(documents, READS),
        count(leases, READS),
        _total(etcd, "etcd_network_client_grpc_received_bytes_total"),
        _watched(api),
        _total(api, "process_cpu_seconds_total"),
        _total(etcd, "process_cpu_seconds_total"),
    )


def _watched(text: str) -> float:
    found = [labels for labels in _samples(text) if labels[0] == "apiserver_watch_events_total"]
    return sum(value for _, labels, value in found if labels.get("resource", labels.get("kind", "")).lower() in KINDS)


KINDS: Final = (*RESOURCES, "statedocument", "lease")


def _total(text: str, name: str) -> float:
    return sum(value for found, _, value in _samples(text) if found == name)


def _samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    found = (_SAMPLE.match(line) for line in text.splitlines())
    return [(m["name"], dict(_LABEL.findall(m["labels"] or "")), float(m["value"])) for m in found if m]


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
