"""The processor time of a process with all processes that it starts, as Linux counts it."""

import os
import resource
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# The fields after the name in /proc/PID/stat: utime, stime, cutime and cstime.
TIMES: Final = slice(11, 15)


def used_s() -> float:
    """Return the seconds of this process, of its ended children, and of the running ones with all theirs."""
    ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in ended) + sum(map(_tree_s, _children(os.getpid())))


def _tree_s(pid: int) -> float:
    return _process_s(pid) + sum(map(_tree_s, _children(pid)))


def _process_s(pid: int) -> float:
    """Return the seconds of one process and of its ended children, or 0 if it has ended."""
    try:
        behind_the_name = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return 0.0
    return sum(map(int, behind_the_name.split()[TIMES])) / TICKS_PER_S


def _children(pid: int) -> list[int]:
    """Return the running children of a process; the kernel lists them by the thread that started them."""
    found = []
    try:
        threads = os.listdir(PROC / str(pid) / "task")
    except OSError:
        return []
    for thread in threads:
        try:
            found += (PROC / str(pid) / "task" / thread / "children").read_text(encoding="utf-8").split()
        except OSError:
            continue  # The thread has ended, or the kernel lists no children.
    return [int(child) for child in found]
