"""CPU seconds and memory of a server and the helper processes it started, read from /proc."""

import os
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")


def family(pid: int) -> list[int]:
    """The process and all its living descendants."""
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
    """The fields of /proc/PID/stat from `state` (proc(5): field 3) on; empty when the process is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def cpu_seconds(pid: int) -> float:
    """User and system time of the family, with that of its ended and awaited members (resolution: one tick)."""
    ticks = 0
    for member in family(pid):
        fields = _stat(member)
        # utime, stime, cutime, cstime are fields 14 to 17 of proc(5).
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Resident memory of the family in MB (10^6 bytes); shared pages count in each member."""
    pages = sum(int(fields[21]) for member in family(pid) if (fields := _stat(member)))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
