"""The resource usage of the process from /proc of Linux, under the metric names of Prometheus' own clients."""

import os
import resource
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_broker.server.metrics.exposition import Family, single

PROC: Final = Path("/proc")
RESIDENT_PAGES: Final = 1
"""The index of the number of resident pages in `/proc/self/statm`."""
START_TICKS: Final = 19
"""The index of the start time in `/proc/self/stat`, counted after the name, which may contain blanks."""


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


def read_usage() -> ProcessUsage | None:
    """Return the usage of this process, or None without /proc; the call blocks."""
    try:
        return ProcessUsage(
            resident_bytes=int((PROC / "self/statm").read_text().split()[RESIDENT_PAGES]) * resource.getpagesize(),
            cpu_s=sum(os.times()[:2]),
            started_s=_boot_s() + _start_ticks() / os.sysconf("SC_CLK_TCK"),
            open_fds=len(os.listdir(PROC / "self/fd")),
            fds_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
    except FileNotFoundError:
        return None


def _start_ticks() -> int:
    return int((PROC / "self/stat").read_text().rpartition(")")[2].split()[START_TICKS])


def _boot_s() -> int:
    """Return the Unix time of the boot in seconds."""
    lines = (PROC / "stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
