"""The cost of a test, and tables of many. Pure."""

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

BUDGETS: Final = Path(__file__).with_name("budgets.toml")
SLOWEST: Final = 30
OTHERS: Final = "(no budget)"


class Cost(NamedTuple):
    """The cost of one test with its set-up and tear-down."""

    test: str
    seconds: float
    processor_s: float
    """The processor time of the worker and of all processes that it started, during the test."""


class Part(NamedTuple):
    """The tests below a folder or in a file that has a budget."""

    name: str
    tests: int
    seconds: float
    processor_s: float
    budget_s: float | None
    """The budget of processor seconds."""

    @property
    def is_above(self) -> bool:
        """True if its tests took more than its budget."""
        return self.budget_s is not None and self.processor_s > self.budget_s


def to_line(cost: Cost) -> str:
    """Return a line of JSON, for a file of many."""
    return json.dumps(cost._asdict()) + "\n"


def from_lines(text: str) -> list[Cost]:
    """Return the costs in such a file."""
    return [Cost(**json.loads(line)) for line in text.splitlines()]


def read_budgets(file: Path = BUDGETS) -> dict[str, float]:
    """Return the processor seconds that are allowed for each folder or file."""
    return {name: minutes * 60 for name, minutes in tomllib.loads(file.read_text("utf-8"))["processor_minutes"].items()}


def parts(costs: Iterable[Cost], budgets: Mapping[str, float]) -> list[Part]:
    """Return the parts, the most expensive first. A test counts for the longest path that has a budget."""
    found: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        above = [name for name in budgets if cost.test.startswith((f"{name}/", f"{name}::"))]
        found[max(above, key=len, default=OTHERS)].append(cost)
    all_parts = [
        Part(name, len(own), sum(c.seconds for c in own), sum(c.processor_s for c in own), budgets.get(name))
        for name, own in found.items()
    ]
    return sorted(all_parts, key=lambda part: part.processor_s, reverse=True)


def report(costs: list[Cost], budgets: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines below a run of tests."""
    yield f"{SLOWEST} slowest tests (seconds, processor seconds)"
    for cost in sorted(costs, key=lambda cost: cost.seconds, reverse=True)[:SLOWEST]:
        yield f"{cost.seconds:7.1f} {cost.processor_s:7.1f}  {cost.test}"
    yield "folders (tests, minutes, processor minutes, budget)"
    found = parts(costs, budgets)
    for part in found:
        budget = "      -" if part.budget_s is None else f"{part.budget_s / 60:7.1f}"
        above = "  ABOVE ITS BUDGET" if part.is_above else ""
        yield f"{part.tests:5} {part.seconds / 60:7.1f} {part.processor_s / 60:7.1f} {budget}  {part.name}{above}"
    total = sum(part.processor_s for part in found)
    yield f"{len(costs):5} {sum(part.seconds for part in found) / 60:7.1f} {total / 60:7.1f}          in all"
    named = [part.name for part in found if part.is_above]
    yield f"above their budgets ({BUDGETS.name}): {', '.join(named) or 'none'}"
