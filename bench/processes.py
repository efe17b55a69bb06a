"""CPU seconds and memory of servers and the helper processes they started, read from /proc."""

import os
import time
from pathlib import Path
from typing import Final

CPUCLOCK_SCHED: Final = 2
"""The kind of a process's CPU clock that counts nanoseconds, in the kernel's clock ids."""
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")


def family(pid: int) -> list[int]:
    """Return the process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [pid]
    for each in found:
        found.extend(children.get(each, ()))
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from `state` (proc(5): field 3) on, or nothing if the process has ended."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def cpu_seconds(*pids: int) -> float:
    """Return user and system time of the families, exact to the scheduler; for ended members in ticks of 10 ms."""
    return sum(_own_cpu_seconds(member) + _awaited_cpu_seconds(member) for pid in pids for member in family(pid))


def _own_cpu_seconds(pid: int) -> float:
    """Return the time of all threads, also of ended ones, by clock_getcpuclockid(3), or 0 if the process has ended."""
    try:
        return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def _awaited_cpu_seconds(pid: int) -> float:
    """Return the time of children that ended and were awaited: cutime and cstime, fields 16 and 17 of proc(5)."""
    return sum(int(field) for field in _stat(pid)[13:15]) / TICKS_PER_S


def rss_mb(*pids: int) -> float:
    """Return the resident memory of the families in MB (10^6 bytes); shared pages count in each member."""
    pages = sum(int(fields[21]) for pid in pids for member in family(pid) if (fields := _stat(member)))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_rss_mb(pid: int) -> float:
    """Return the largest resident memory that a process has had, in MB (10^6 bytes), or 0 if it has ended."""
    try:
        lines = (PROC / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6
