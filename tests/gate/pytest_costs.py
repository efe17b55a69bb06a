"""A plugin of pytest that measures the cost of each test.

Seconds and processor seconds, with set-up and tear-down, are properties in JUnit's XML. `--costs FILE` writes a line of
JSON for each test, and below the run tables of them and of what was left out. A worker sends both numbers to the first
process with the test's report.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gate.costs import Cost, read_budgets, report, to_line
from gate.processor_time import used_s

SECONDS: Final = "seconds"
PROCESSOR_S: Final = "processor_seconds"
MEASURED: Final = (SECONDS, PROCESSOR_S)
BEGAN: Final = pytest.StashKey[tuple[float, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, help="the file for a line of JSON about each test; tables are printed too")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--costs")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(CostsOfARun(file))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[BEGAN] = (time.monotonic(), used_s())
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Store the cost in the report of the tear-down, which is the last one."""
    if call.when == "teardown":
        began_s, used_before_s = item.stash[BEGAN]
        # If the parent of a process did not wait for it, its time is lost.
        used = max(0.0, used_s() - used_before_s)
        item.user_properties += [(SECONDS, round(time.monotonic() - began_s, 3)), (PROCESSOR_S, round(used, 3))]


def without_group(test: str) -> str:
    """Return the id of a test without @ and its group, which `--dist loadgroup` has added."""
    start, at, group = test.rpartition("@")
    return start if at and "]" not in group else test


class CostsOfARun:
    """Collects what all workers report, in the first process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._costs: list[Cost] = []
        self._left_out: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:  # The failure is printed now: the run may take half an hour more.
            print(f"\nFAILED: {report.nodeid}\n{report.longreprtext}", flush=True)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._left_out[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if report.when == "teardown":
            values = {name: float(str(value)) for name, value in report.user_properties if name in MEASURED}
            self._costs.append(Cost(without_group(report.nodeid), values[SECONDS], values[PROCESSOR_S]))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("".join(map(to_line, self._costs)), encoding="utf-8")
        terminalreporter.section("costs")
        for line in report(self._costs, read_budgets()):
            terminalreporter.write_line(line)
        for reason, tests in self._left_out.most_common():
            terminalreporter.write_line(f"{tests:5} left out: {reason}")
