"""The ratios of a run as one picture: one bar a row; Barnabas is better to the right of the line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import matplotlib as mpl

from bench.results import RunResult, advantage
from bench.row import Row

mpl.use("Agg")

from matplotlib import pyplot

COLOURS: Final = ("#4c72b0", "#55a868")
ROW_INCHES: Final = 0.24


def _bars(run: RunResult, rows: list[Row]) -> Iterator[tuple[str, list[float]]]:
    """Yield each row's name and the advantage in its first two metrics."""
    results = {result.key: result for result in run.rows}
    for row in rows:
        if row.key not in results:
            continue
        ratios = [(metric, results[row.key].ratio(metric, row.group.peer)) for metric in row.group.metrics[:2]]
        values = [advantage(metric, ratio) for metric, ratio in ratios if ratio]
        if values:
            yield row.key, values


def draw(run: RunResult, rows: list[Row], path: Path) -> None:
    """Write a PNG, but nothing if no row has both peers."""
    bars = list(_bars(run, rows))
    if not bars:
        return
    figure, axes = pyplot.subplots(figsize=(10, 1.5 + ROW_INCHES * len(bars)))
    for place, (_, values) in enumerate(bars):
        for number, value in enumerate(values):
            axes.barh(place + (number - 0.5) * 0.38, value, height=0.36, color=COLOURS[number])
    axes.set_yticks(range(len(bars)), [name for name, _ in bars], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("times better than the other (log); blue: the row's first metric, green: its second")
    axes.set_title(f"Barnabas {run.commit} beside its peers, {run.date}, {run.mode} run")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
