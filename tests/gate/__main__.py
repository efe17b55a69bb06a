"""`python -m gate`, which is `.ci/run`: all stages, and what they and their tests cost.

It runs before there is a virtual environment, so it needs nothing but Python. A stage that fails ends all others.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from gate.costs import from_lines, read_budgets, report
from gate.quarantine import read_quarantine
from gate.stages import QUARANTINED, STAGES, Outcome, Stage, due, table

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / ".cache" / "results"


def main() -> int:
    """1 when a stage failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in RESULTS.glob("*.jsonl"):
        old.unlink()
    run = Run()
    try:
        run.all_stages()
    finally:
        run.end_all()
    costs = [cost for file in sorted(RESULTS.glob("*.jsonl")) for cost in from_lines(file.read_text("utf-8"))]
    print("\n".join(["", *report(costs, read_budgets()), "", *table(run.outcomes)]), flush=True)
    failed = [outcome.stage for outcome in run.outcomes if outcome.code]
    if failed:
        print(f"FAILED: {failed[0]}; its output is in {RESULTS / failed[0]}.log", flush=True)
    return int(bool(failed))


class Run:
    """The stages that run, each in a group of processes of its own, and those that have ended."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._ended: queue.Queue[Outcome] = queue.Queue()
        self.outcomes: list[Outcome] = []

    def all_stages(self) -> None:
        """Returns when all have passed, or as soon as one has failed."""
        stages = (*STAGES, QUARANTINED) if read_quarantine() else STAGES
        while True:
            for stage in due(stages, {one.stage: one for one in self.outcomes}, list(self._running)):
                self._start(stage)
            if not self._running:
                return
            outcome = self._ended.get()
            del self._running[outcome.stage]
            self.outcomes.append(outcome)
            print(f"[{outcome.stage}] ended after {outcome.seconds:.0f} s with {outcome.code}", flush=True)
            if outcome.code:
                return

    def end_all(self) -> None:
        """Ends what still runs."""
        for name, process in self._running.items():
            print(f"[{name}] is ended", flush=True)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        while self._running:
            del self._running[self._ended.get().stage]

    def _start(self, stage: Stage) -> None:
        print(f"[{stage.name}] {stage.command}", flush=True)
        process = subprocess.Popen(
            stage.command.split(),
            cwd=ROOT,
            env={**os.environ, "RESULTS": str(RESULTS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._running[stage.name] = process
        threading.Thread(target=self._follow, args=(stage, process), daemon=True).start()

    def _follow(self, stage: Stage, process: subprocess.Popen[str]) -> None:
        """Shows its output as it comes."""
        began_s = time.monotonic()
        assert process.stdout is not None, "it was started with a pipe"
        with (RESULTS / f"{stage.name}.log").open("w", encoding="utf-8") as log:
            for line in process.stdout:
                log.write(line)
                print(f"[{stage.name}] {line}", end="", flush=True)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began_s
        self._ended.put(Outcome(stage.name, code, began_s - self._began_s, seconds, used.ru_utime + used.ru_stime))


if __name__ == "__main__":
    sys.exit(main())
