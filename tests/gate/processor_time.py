"""The processor time of a process with all that it starts, as Linux counts it."""

import os
import resource
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat behind the name: utime, stime, cutime and cstime.
TIMES: Final = slice(11, 15)


def used_s() -> float:
    """The seconds of this process, of its children that have ended, and of those that run now with all theirs."""
    ended = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in ended) + sum(map(_tree_s, _children(os.getpid())))


def _tree_s(pid: int) -> float:
    return _process_s(pid) + sum(map(_tree_s, _children(pid)))


def _process_s(pid: int) -> float:
    """The seconds of one process and of its children that have ended; 0 where it is gone meanwhile."""
    try:
        behind_the_name = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return 0.0
    return sum(map(int, behind_the_name.split()[TIMES])) / TICKS_PER_S


def _children(pid: int) -> list[int]:
    """The processes that a process has started and that run now; each belongs to the thread that started it."""
    found = []
    try:
        threads = os.listdir(PROC / str(pid) / "task")
    except OSError:
        return []
    for thread in threads:
        try:
            found += (PROC / str(pid) / "task" / thread / "children").read_text(encoding="utf-8").split()
        except OSError:
            continue  # The thread has ended meanwhile, or the kernel does not list children.
    return [int(child) for child in found]
