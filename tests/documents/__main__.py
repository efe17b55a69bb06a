"""`python -m documents PAGE`: does what a page says in this folder, block by block; 1 at the first that goes wrong."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from documents.pages import Run, Write, lacking, steps
from harness.deadline import wait_for

BASH: Final = ("bash", "-euo", "pipefail", "-c")
PAGE_SECONDS_MAX: Final = 600


class WrongPage(Exception):
    """A block that did not do what the page says."""


def do(page: Path) -> None:
    """Do all steps of a page in the current folder, and end what runs in the background. Raises WrongPage."""
    background: list[subprocess.Popen[bytes]] = []
    try:
        for step in steps(page):
            if isinstance(step, Write):
                Path(step.file).parent.mkdir(parents=True, exist_ok=True)
                Path(step.file).write_text(step.text, encoding="utf-8")
            elif step.in_background:
                background.append(_begin(step, Path(f"background-{len(background)}.log")))
            else:
                _run(step)
    finally:
        for process in background:
            process.send_signal(signal.SIGINT)
        codes = [process.wait(PAGE_SECONDS_MAX) for process in background]
    if any(codes):
        raise WrongPage(f"after Ctrl-C what ran in the background ended with the exit codes {codes}")


def _begin(step: Run, log: Path) -> subprocess.Popen[bytes]:
    """Start it, and return it once it has printed what the page shows."""
    print(f"$ {step.commands.strip()} &", flush=True)
    with log.open("wb") as output:
        command = ["env", "--default-signal=INT", *BASH, f"exec {step.commands}"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    wait_for(lambda: process.poll() is not None or not lacking(step.expected, log.read_text("utf-8")))
    if process.poll() is not None:
        raise WrongPage(f"it ended with exit code {process.returncode}:\n{log.read_text('utf-8')}")
    return process


def _run(step: Run) -> None:
    """Run it; what shows a state that is still to come runs until it is there."""
    print(f"$ {step.commands.strip()}", flush=True)
    if not step.expected:
        ran = subprocess.run([*BASH, step.commands], check=False)
        if ran.returncode:
            raise WrongPage(f"exit code {ran.returncode}: {step.commands}")
        return
    shown = wait_for(
        lambda: subprocess.run([*BASH, step.commands], stdout=subprocess.PIPE, text=True, check=False).stdout,
        lambda output: not lacking(step.expected, output),
    )
    print(shown, flush=True)


if __name__ == "__main__":
    try:
        do(Path(sys.argv[1]).resolve())
    except (WrongPage, AssertionError) as wrong:
        sys.exit(f"{sys.argv[1]}: {wrong}")
