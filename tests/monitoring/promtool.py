"""Runs promtool on the rules."""

import subprocess
from pathlib import Path
from typing import Final

from harness.deadline import PATIENCE_S
from harness.require import missing
from local_kubernetes.binaries import CannotStart
from monitoring.prometheus_programs import prometheus_programs

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "helm" / "barnabas" / "monitoring" / "rules.yaml"
GUIDE: Final = ROOT / "docs" / "how-to" / "monitor.md"
TABLES: Final = ROOT / "docs" / "reference" / "monitoring.md"


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command, and return whatever happens. Without promtool the test ends."""
    try:
        program = prometheus_programs() / "promtool"
    except CannotStart as reason:
        missing(reason)
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
