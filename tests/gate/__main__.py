"""`python -m gate`, which is `.ci/run`: runs all stages, and reports their costs and those of their tests.

It runs before there is a virtual environment, so it needs only Python. A failed stage ends none of
the others, so that one run shows all problems.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from gate.costs import from_lines, read_budgets, report
from gate.quarantine import read_quarantine
from gate.stages import QUARANTINED, STAGES, Outcome, Stage, due, failures, table
from harness.kept_builds import cache

ROOT: Final = Path(__file__).resolve().parents[2]
SHOWN_SECONDS_MAX: Final = 10.0
"""The time after the end of a stage. A process that it left behind may keep the pipe open."""
RESULTS: Final = ROOT / ".cache" / "results"


def main() -> int:
    """Run all stages; return 1 if one failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in RESULTS.glob("*.jsonl"):
        old.unlink()
    run = Run((*STAGES, QUARANTINED) if read_quarantine() else STAGES, RESULTS)
    run.all_stages()
    costs = [cost for file in sorted(RESULTS.glob("*.jsonl")) for cost in from_lines(file.read_text("utf-8"))]
    print("\n".join(["", *report(costs, read_budgets()), "", *table(run.outcomes)]), flush=True)
    failed = [outcome.stage for outcome in run.outcomes if outcome.code]
    for stage in failed:
        log = RESULTS / f"{stage}.log"
        output = log.read_text("utf-8", errors="replace")
        print("\n".join([f"FAILED: {stage}; its output is in {log}", *failures(stage, output)]), flush=True)
    return int(bool(failed))


class Run:
    """The running stages, each in its own process group, and the ended ones."""

    def __init__(self, stages: Sequence[Stage], results: Path) -> None:
        self._stages = stages
        self._results = results
        self._began_s = time.monotonic()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._ended: queue.Queue[Outcome] = queue.Queue()
        self.outcomes: list[Outcome] = []

    def all_stages(self) -> None:
        """Return when all have ended, except those that need a failed one. An exception ends all of them."""
        try:
            self._until_none_is_due()
        finally:
            self._end_all()

    def _until_none_is_due(self) -> None:
        while True:
            for stage in due(self._stages, {one.stage: one for one in self.outcomes}, list(self._running)):
                self._start(stage)
            if not self._running:
                return
            self._end_of_one()

    def _end_of_one(self) -> None:
        outcome = self._ended.get()
        del self._running[outcome.stage]
        self.outcomes.append(outcome)
        print(f"[{outcome.stage}] ended after {outcome.seconds:.0f} s with {outcome.code}", flush=True)

    def _end_all(self) -> None:
        for name, process in self._running.items():
            print(f"[{name}] is ended", flush=True)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        while self._running:
            self._end_of_one()

    def _start(self, stage: Stage) -> None:
        print(f"[{stage.name}] {stage.command}", flush=True)
        process = subprocess.Popen(
            stage.words,
            cwd=ROOT,
            env={**os.environ, "RESULTS": str(self._results), "MYPY_CACHE_DIR": str(cache() / "mypy")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._running[stage.name] = process
        threading.Thread(target=self._follow, args=(stage, process), daemon=True).start()

    def _follow(self, stage: Stage, process: subprocess.Popen[str]) -> None:
        began_s = time.monotonic()
        showing = threading.Thread(target=self._show, args=(stage, process), daemon=True)
        showing.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began_s
        showing.join(SHOWN_SECONDS_MAX)
        self._ended.put(Outcome(stage.name, code, began_s - self._began_s, seconds, used.ru_utime + used.ru_stime))

    def _show(self, stage: Stage, process: subprocess.Popen[str]) -> None:
        """Show its output as it comes."""
        assert process.stdout is not None, "the process must have a pipe"
        with (self._results / f"{stage.name}.log").open("w", encoding="utf-8", buffering=1) as log:
            for line in process.stdout:
                log.write(line)
                print(f"[{stage.name}] {line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
