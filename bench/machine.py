"""Facts about the machine, and the versions of all programs that take part in a run."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def _first(pattern: str, text: str, default: str = "unknown") -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1).strip() if found else default


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout + done.stderr


def commit() -> str:
    """Return the short commit of the checkout, with `+changes` if the tree differs from it."""
    name = _output("git", "rev-parse", "--short", "HEAD").strip() or "unknown"
    return name + ("+changes" if _output("git", "status", "--porcelain", "--untracked-files=no").strip() else "")


def commits() -> str:
    """Return the number of commits up to the checkout."""
    return _output("git", "rev-list", "--count", "HEAD").strip() or "0"


def load_average() -> str:
    """Return the load over 1, 5 and 15 minutes, which shows what else ran on the machine."""
    return " ".join(f"{each:.2f}" for each in os.getloadavg())


def facts() -> dict[str, str]:
    """Return the facts that a reader needs to judge the numbers."""
    memory = int(_first(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="ascii"), "0"))
    processor = _first(r"^model name\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return {
        "processor": f"{os.cpu_count()} x {processor}",
        "memory": f"{memory / 2**20:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "load average at the start": load_average(),
        "Python": platform.python_version(),
        "Java": _first(r'version "([^"]+)"', _output("java", "-version")),
        "librdkafka": f"that of confluent-kafka {version('confluent-kafka')}",
    }
