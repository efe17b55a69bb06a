"""The closed-loop raw load generator of the prototype: one prepared request repeated on N connections."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.clients.job import BUILD, BUILD_SECONDS_MAX, Counted, PartMissing, build, run_command

FIELDS: Final = {
    "requests_per_s": r"req/s ([\d.]+)",
    "p50_us": r"p50us ([\d.]+)",
    "p99_us": r"p99us ([\d.]+)",
    "requests": r" n (\d+)",
    "client_cpu_s": r"clientcpu ([\d.]+)",
}


class RawClient:
    """`folder` is the prototype's: load.c, and mkreq.py that prepares the requests."""

    def __init__(self, folder: Path) -> None:
        source = folder / "load.c"
        if not source.exists():
            raise PartMissing(f"there is no prototype in {folder} (--prototype DIR or PROTOTYPE_DIR)")
        target = BUILD / "raw_load"
        self._program = build(target, [source], ["cc", "-O2", "-w", "-o", str(target), str(source)])
        self._requests = BUILD / "requests"
        self._prepare(folder / "mkreq.py")

    def _prepare(self, script: Path) -> None:
        self._requests.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(script)]
        subprocess.run(command, cwd=self._requests, check=True, timeout=BUILD_SECONDS_MAX, capture_output=True)

    def run(self, request: str, connections: int, seconds: float, port: int) -> Counted:
        """Send the request in the file that mkreq.py wrote; answers are discarded in the kernel."""
        words = [str(port), str(self._requests / "req" / request), str(connections), str(seconds), "trunc"]
        output = run_command([str(self._program), *words])
        found = {name: re.search(pattern, output) for name, pattern in FIELDS.items()}
        return {name: float(match.group(1)) for name, match in found.items() if match}
