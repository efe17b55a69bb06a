"""The results of a run as data: by row and peer the runs and their medians; saved as JSON and read for rendering."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.metrics import Better, Measurement, Metric, median_interval, medians
from bench.row import SUBJECT, Row


@dataclass(slots=True)
class RowResult:
    """`runs` holds each peer's repeats in order; `problem` says why the row, or a repeat of it, was not run."""

    key: str
    runs: dict[str, list[Measurement]] = field(default_factory=dict)
    problem: str | None = None

    def add(self, peer: str, measurement: Measurement) -> None:
        """Add one repeat."""
        self.runs.setdefault(peer, []).append(measurement)

    def median(self, peer: str, metric: Metric) -> float | None:
        """Return the median, or None if the peer was not measured."""
        return medians(self.runs.get(peer, [])).get(metric.name)

    def ratio(self, metric: Metric, peer: str) -> float | None:
        """Return the subject's median over the peer's."""
        mine, its = self.median(SUBJECT, metric), self.median(peer, metric)
        return mine / its if mine is not None and its else None

    def ratio_interval(self, metric: Metric, peer: str) -> tuple[float, float] | None:
        """Return the 95 % interval of the median ratio of adjacent runs, or None for fewer than six pairs."""
        mine, its = ([run[metric.name] for run in self.runs.get(name, [])] for name in (SUBJECT, peer))
        return median_interval([one / other for one, other in zip(mine, its, strict=False) if other])


@dataclass(frozen=True, slots=True)
class Verdict:
    """A metric with an aim: met, missed, or None if it cannot be judged without the peer."""

    metric: Metric
    met: bool | None


def verdicts(row: Row, result: RowResult) -> Iterator[Verdict]:
    """Yield a verdict for each metric that has an aim and was measured."""
    for metric in row.group.metrics:
        value = result.median(SUBJECT, metric)
        if metric.aim is not None and value is not None:
            yield Verdict(metric, metric.aim.met(value, result.median(row.group.peer, metric)))


def advantage(metric: Metric, ratio: float) -> float:
    """Return how many times better the subject is: above 1 is better in either direction of the metric."""
    return ratio if metric.better is Better.HIGHER else 1 / ratio


@dataclass(slots=True)
class RunResult:
    """A whole run."""

    date: str
    mode: str
    commit: str
    facts: dict[str, str]
    versions: Mapping[str, str]
    rows: list[RowResult] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write indented JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> RunResult:
    """Read what `save` wrote."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [RowResult(**row) for row in document.pop("rows")]
    return RunResult(**document, rows=rows)
