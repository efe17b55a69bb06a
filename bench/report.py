"""A run as Markdown: one table a group, each cell `subject / peer = ratio`. Pure."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from bench.metrics import Better, Metric
from bench.results import RowResult, RunResult, verdicts
from bench.row import SUBJECT, Row

ARROWS: Final = {Better.HIGHER: "↑", Better.LOWER: "↓"}
NOTES: Final = """\
Each cell is `Barnabas / the other = ratio`, medians over the repeats; ↑ more is better, ↓ less is better. The two
brokers and the client share the machine's cores; the brokers take turns, run by run, in one run of the bench. CPU is
that of the broker and the helper processes it started (user and system);
MB are 10^6 bytes of record values before compression. In brackets: where the median ratio of two neighbouring runs
lies with 95 %, if there were six pairs.
"""


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(metric: Metric, result: RowResult, peer: str) -> str:
    """Return the two medians and their ratio."""
    mine, its = result.median(SUBJECT, metric), result.median(peer, metric)
    if mine is None and its is None:
        return "-"
    ratio = result.ratio(metric, peer)
    pair = " / ".join("-" if value is None else _number(value) for value in (mine, its))
    if ratio is None:
        return pair
    interval = result.ratio_interval(metric, peer)
    return f"{pair} = **{ratio:.2f}**" + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else "")


def aim_cell(row: Row, result: RowResult) -> str:
    """Return `met`, or which metrics miss their aims."""
    judged = list(verdicts(row, result))
    missed = [f"{each.metric.title} ({each.metric.aim})" for each in judged if each.met is False]
    if missed:
        return "missed: " + ", ".join(missed)
    return "met" if judged and all(each.met for each in judged) else "-"


def why_cell(row: Row, result: RowResult, reasons: Mapping[str, str]) -> str:
    """Return why the row misses its aim (from reasons.toml, for the row or its group), or why it was not run."""
    written = reasons.get(row.key, reasons.get(row.group.key, ""))
    missed = any(each.met is False for each in verdicts(row, result))
    parts = (written if missed else "", f"not run: {result.problem}" if result.problem else "")
    return "; ".join(" ".join(part.replace("|", "/").split()) for part in parts if part)


def _group_lines(
    rows: list[Row], results: Mapping[str, RowResult], titles: Mapping[str, str], reasons: Mapping[str, str]
) -> Iterator[str]:
    group = rows[0].group
    yield f"## {group.title} ({titles[SUBJECT]} / {titles[group.peer]})\n"
    columns = [f"{metric.title} {ARROWS[metric.better]}" for metric in group.metrics]
    yield "| " + " | ".join(["row", *columns, "aim", "why"]) + " |"
    yield "|" + "---|" * (len(columns) + 3)
    for row in rows:
        result = results[row.key]
        cells = [cell(metric, result, group.peer) for metric in group.metrics]
        yield "| " + " | ".join([row.title, *cells, aim_cell(row, result), why_cell(row, result, reasons)]) + " |"
    yield ""


def markdown(run: RunResult, rows: list[Row], titles: Mapping[str, str], reasons: Mapping[str, str]) -> str:
    """Return the whole page; rows without a result are left out."""
    results = {result.key: result for result in run.rows}
    measured = [row for row in rows if row.key in results]
    judged = [each for row in measured for each in verdicts(row, results[row.key]) if each.met is not None]
    lines = [
        f"# Bench, {run.date}, {run.mode} run, commit {run.commit}\n",
        NOTES,
        *(f"- {name}: {value}" for name, value in {**run.facts, **run.versions}.items()),
        "",
        f"Aims met: {sum(bool(each.met) for each in judged)} of {len(judged)} that could be judged.\n",
    ]
    for _, some in groupby(measured, key=lambda row: row.group.key):
        lines.extend(_group_lines(list(some), results, titles, reasons))
    return "\n".join(lines)
