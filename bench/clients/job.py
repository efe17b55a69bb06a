"""One load run, in the words that the C and the Java load generators both accept."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / ".cache/bench"
# A run stops by itself after its seconds; this limit is for one that hangs.
RUN_SECONDS_MAX: Final = 90.0
BUILD_SECONDS_MAX: Final = 120.0

Counted = Mapping[str, float]


class NotRun(Exception):
    """A row, or one repeat of it, that could not be run; the text says why and goes into the table."""


class PartMissing(NotRun):
    """Something that the row needs is not on this machine: no server is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`mode` is produce, consume, in-flight, poll, with librdkafka zeros, and with the Java client transact or copy.

    A run ends at `records_max` or `seconds_max`, whichever is first.
    """

    mode: str
    topic: str
    partitions: int
    record_bytes: int
    records_max: int
    seconds_max: float
    settings: Mapping[str, str] = field(default_factory=dict)

    def words(self, bootstrap: str) -> list[str]:
        """Return the command line (C), or the line of standard input (Java)."""
        numbers = (self.partitions, self.record_bytes, self.records_max, self.seconds_max)
        settings = [f"{name}={value}" for name, value in self.settings.items()]
        return [self.mode, bootstrap, self.topic, *map(str, numbers), *settings]


def build(target: Path, sources: Sequence[Path], command: Sequence[str]) -> Path:
    """Run the compiler if `target` is missing or older than a source."""
    newest = max(source.stat().st_mtime for source in sources)
    if target.exists() and target.stat().st_mtime >= newest:
        return target
    if shutil.which(command[0]) is None:
        raise PartMissing(f"{command[0]} is not on the machine")
    BUILD.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX)
    if done.returncode != 0:
        raise NotRun(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    return target


def run_command(command: Sequence[str]) -> str:
    """Return the standard output of one load run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise NotRun(f"no end after {RUN_SECONDS_MAX:.0f} s") from None
    if done.returncode != 0:
        raise NotRun(done.stderr.strip()[-300:] or f"ended with {done.returncode}")
    return done.stdout


def parse_counted(line: str) -> Counted:
    """Parse the loader's line of JSON."""
    counted = json.loads(line)
    if "error" in counted:
        raise NotRun(str(counted["error"])[-300:])
    return {name: float(value) for name, value in counted.items()}
