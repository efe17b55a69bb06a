"""The stages of `.ci/run`, and which of them may start when. Pure."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

AT_ONCE_MAX: Final = 2
"""The number of stages that run at once. They keep two processors busy; a third stage makes each test dearer."""
FAILURES_SHOWN: Final = 20
"""The number of failures of each stage in the last lines."""


class Stage(NamedTuple):
    """One command, which runs when the stages that it needs have passed."""

    name: str
    command: str
    needs: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The program and its arguments, quoted as in a shell."""
        return shlex.split(self.command)


STAGES: Final = (
    Stage("venv", "make venv"),
    # The longest stages come first: the tests that need a build, and those on pods, which need Kubernetes and images.
    Stage("e2e-tools", "make e2e-tools", ("venv",)),
    Stage("spark", "make .venv/spark", ("venv",)),
    Stage("compat-clients", "make compat-clients", ("venv",)),
    Stage("images", "make images", ("e2e-tools",)),
    # The longest stage of tests has a side to itself; the other stages follow each other beside it. A whole Kubernetes
    # costs a third of a processor even when idle: its tests come soon, and end soon, because floors do not run beside.
    Stage("test-rest", "nice make test-rest", ("spark", "compat-clients", "e2e-tools")),
    Stage("e2e", "make e2e", ("compat-clients", "images")),
    Stage("check", "make check", ("spark",)),
    Stage("bytecodes", "make bytecodes", ("spark",)),
    Stage("console", "make proof-console PROOF='--topics 20 --groups 20 --short'", ("spark",)),
    Stage("test-floors", "nice make test-floors", ("spark",)),
)


QUARANTINED: Final = Stage("quarantine", "make --ignore-errors quarantine", ("test-rest",))
"""The stage for quarantined tests, if there are any. It is reported, and does not count."""


class Outcome(NamedTuple):
    """A stage that has ended."""

    stage: str
    code: int
    began_s: float
    """The time since the start of the run."""
    seconds: float
    processor_s: float


def due(stages: Sequence[Stage], ended: Mapping[str, Outcome], running: Sequence[str]) -> list[Stage]:
    """Return the stages that may start now, in their order; none that needs a failed one."""
    passed = {name for name, outcome in ended.items() if outcome.code == 0}
    ready = [
        stage
        for stage in stages
        if stage.name not in ended and stage.name not in running and passed.issuperset(stage.needs)
    ]
    return ready[: AT_ONCE_MAX - len(running)]


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines of all ended stages."""
    yield "stages (began at, minutes, processor minutes)"
    for one in outcomes:
        failed = f"  FAILED: exit code {one.code}" if one.code else ""
        yield f"{one.began_s / 60:7.1f} {one.seconds / 60:7.1f} {one.processor_s / 60:7.1f}  {one.stage}{failed}"
    minutes, processor_minutes = _in_all(outcomes)
    yield f"        {minutes:7.1f} {processor_minutes:7.1f}  in all"


def failures(stage: str, output: str) -> Iterator[str]:
    """Yield the lines in which pytest sums up the failures of a failed stage, at most FAILURES_SHOWN."""
    lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    yield from (f"[{stage}] {line}" for line in lines[:FAILURES_SHOWN])
    if len(lines) > FAILURES_SHOWN:
        yield f"[{stage}] and {len(lines) - FAILURES_SHOWN} more"


def _in_all(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    ends_s = max((one.began_s + one.seconds for one in outcomes), default=0.0)
    return ends_s / 60, sum(one.processor_s for one in outcomes) / 60
