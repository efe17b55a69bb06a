"""The resource usage of the process, under the metric names of Prometheus' own clients."""

from typing import NamedTuple

from barnabas_broker.server.metrics.exposition import Family, single


class ProcessUsage(NamedTuple):
    """The resource usage that the kernel reports."""

    resident_bytes: int
    cpu_s: float
    started_s: float
    """The start of the process as Unix time in seconds."""
    open_fds: int
    fds_max: int


def process_families(usage: ProcessUsage | None) -> list[Family]:
    """Return the metric families; the list is empty if the usage is unknown."""
    if usage is None:
        return []
    return [
        single(
            "process_resident_memory_bytes", "gauge", "Resident memory of the process in bytes", usage.resident_bytes
        ),
        single("process_cpu_seconds_total", "counter", "CPU seconds that the process has used", usage.cpu_s),
        single("process_start_time_seconds", "gauge", "Start of the process as Unix time in seconds", usage.started_s),
        single("process_open_fds", "gauge", "Number of open files and sockets", usage.open_fds),
        single("process_max_fds", "gauge", "Maximum number of open files and sockets", usage.fds_max),
    ]
