"""What the process takes of the machine, under the names that Prometheus' own clients give it."""

from typing import NamedTuple

from barnabas_broker.server.metrics.exposition import Family, single


class ProcessUsage(NamedTuple):
    """As the kernel tells it now."""

    resident_bytes: int
    cpu_s: float
    started_s: float
    """Unix time."""
    open_fds: int
    fds_max: int


def process_families(usage: ProcessUsage | None) -> list[Family]:
    """None of them where the kernel does not tell."""
    if usage is None:
        return []
    return [
        single("process_resident_memory_bytes", "gauge", "Bytes of resident memory", usage.resident_bytes),
        single("process_cpu_seconds_total", "counter", "CPU seconds that the process has used", usage.cpu_s),
        single("process_start_time_seconds", "gauge", "When the process started, Unix time", usage.started_s),
        single("process_open_fds", "gauge", "Open files and sockets", usage.open_fds),
        single("process_max_fds", "gauge", "Files and sockets that may be open", usage.fds_max),
    ]
