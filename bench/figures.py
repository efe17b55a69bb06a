"""The figures in README and in the page about speed, which `make figures` measures and writes into their tables.

A table stands between two comments, `<!-- figures: NAME -->` and `<!-- end of figures -->`. The figures are those of
`results/figures.json`; a release is refused once they are too old.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

from bench.metrics import Metric
from bench.results import RowResult, RunResult
from bench.row import SUBJECT, Row

ROOT: Final = Path(__file__).resolve().parent.parent
RESULT: Final = ROOT / "bench/results/figures.json"
PAGES: Final = ("README.md", "docs/explanation/how-fast.md")
COMMITS: Final = "commits until then"
"""The fact of a run from which its age follows."""
AGE_MAX: Final = 3_000
"""The maximum number of commits since the figures of a release were measured."""
_BEGIN: Final = "<!-- figures: {} -->\n"
_END: Final = "<!-- end of figures -->"


class StaleFigures(Exception):
    """The figures cannot be in a release; the message says why, and what to do."""


class RowMissing(Exception):
    """A row that a table shows was not measured; the message names it, and why."""


class Figure(NamedTuple):
    """A line of a table: the medians of one row, or the range of the ratios of several rows."""

    what: str
    rows: str
    """The key of the row, or a pattern of keys."""
    metric: str
    times: str = ""
    """The text after the range of ratios; without it the line has the medians of both brokers."""


_START: Final = Figure("from start to the first acknowledged record", "start", "start_s")
_IDLE: Final = Figure("memory of an idle broker (`VmRSS`)", "start", "rss_mb")
_CREATED: Final = Figure("1,000 topics of 6 partitions created", "topics", "create_s")
_CONSUMERS: Final = Figure("consumers, librdkafka", "consume.librdkafka.*", "mb_per_s", "times Kafka's MB/s")
_PRODUCERS_OF_3: Final = Figure(
    "producers, three replicas, `acks=all`", "cluster.produce.*", "mb_per_s", "times Kafka's MB/s"
)
_KILLED: Final = Figure("a new leader answers after one was killed", "cluster.failover.crash", "gap_ms")

TABLES: Final[Mapping[str, Sequence[Figure]]] = {
    "short": (_IDLE, _START, _PRODUCERS_OF_3, _CONSUMERS, _KILLED, _CREATED),
    "one broker": (
        _START,
        _IDLE,
        Figure("producers, librdkafka, `acks=all`", "produce.librdkafka.*", "mb_per_s", "times Kafka's MB/s"),
        Figure("broker CPU for each GB of these", "produce.librdkafka.*", "cpu_s_per_gb", "times Kafka's"),
        _CONSUMERS,
        _CREATED,
        Figure("start with these topics", "topics", "start_s"),
        Figure("memory with these topics", "topics", "rss_mb"),
        Figure("memory with 10,000 idle connections", "connections.10k", "rss_mb"),
        Figure("start to an offset of a group, after 95 MiB of commits", "offsets", "served_s"),
        Figure("p99 of a small produce request beside a consumer that reads from a slow disk", "cold.quick", "p99_us"),
    ),
    "three brokers": (
        _PRODUCERS_OF_3,
        Figure("broker CPU for each GB of these", "cluster.produce.*", "cpu_s_per_gb", "times Kafka's"),
        Figure("round trip of one record", "cluster.round-trip.in-flight", "p50_us"),
        _KILLED,
        Figure("librdkafka continues after that", "cluster.failover.crash", "client_gap_ms"),
        Figure("a new leader answers after one was restarted", "cluster.failover.controlled", "gap_ms"),
        Figure("1,000 leaders elected after a broker was killed", "cluster.elections", "elected_s"),
        Figure("a broker that returns copies", "cluster.catch-up", "mb_per_s"),
    ),
}
_PATTERNS: Final = frozenset(figure.rows for figures in TABLES.values() for figure in figures)
_LEFT_OUT: Final = ("*.acks-1", "produce.librdkafka.10KB.*.lz4.*", "produce.librdkafka.100B.*.lz4.*")


def is_shown(row: Row) -> bool:
    """True if a table shows the row."""
    is_left_out = any(fnmatch(row.key, each) for each in _LEFT_OUT)
    return not is_left_out and any(fnmatch(row.key, each) for each in _PATTERNS)


def table(name: str, run: RunResult, rows: Sequence[Row]) -> str:
    """Return the lines of a table, without its comments. Raises RowMissing."""
    lines = ["| | Barnabas | Apache Kafka |", "|---|---|---|"]
    lines += [f"| {figure.what} | {' | '.join(_cells(figure, run, rows))} |" for figure in TABLES[name]]
    return "".join(f"{line}\n" for line in lines)


def _cells(figure: Figure, run: RunResult, rows: Sequence[Row]) -> tuple[str, str]:
    found = list(_measured(figure, run, rows))
    if not figure.times:
        (row, result, metric), *_ = found
        mine, its = (result.median(peer, metric) for peer in (SUBJECT, row.group.peer))
        return _text(figure.metric, mine), _text(figure.metric, its)
    ratios = [ratio for row, result, metric in found if (ratio := result.ratio(metric, row.group.peer)) is not None]
    low, high = (f"{bound:.2g}" if bound < 1 else f"{bound:.1f}" for bound in (min(ratios), max(ratios)))
    return f"{low} to {high} {figure.times}", ""


def _measured(figure: Figure, run: RunResult, rows: Sequence[Row]) -> Iterator[tuple[Row, RowResult, Metric]]:
    by_key = {row.key: row for row in rows}
    found = [result for result in run.rows if fnmatch(result.key, figure.rows) and result.runs.get(SUBJECT)]
    if not found:
        why = {result.problem for result in run.rows if fnmatch(result.key, figure.rows) and result.problem}
        raise RowMissing(f"the run has no result of {figure.rows}" + "".join(f": {each}" for each in sorted(why)))
    for result in found:
        row = by_key[result.key]
        yield row, result, next(metric for metric in row.group.metrics if metric.name == figure.metric)


def _text(metric: str, value: float | None) -> str:
    """Return a value with its unit, which the end of the metric's name tells."""
    if value is None:
        return "not measured"
    if metric.endswith("mb_per_s"):
        return f"{value:,.0f} MB/s"
    if metric.endswith("_mb"):
        return f"{value:,.0f} MB"
    seconds = value * {"ms": 1e-3, "us": 1e-6}.get(metric.rpartition("_")[2], 1)
    if seconds < 0.01:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


def filled(page: str, run: RunResult, rows: Sequence[Row]) -> str:
    """Return a page with all its tables filled."""
    for name in TABLES:
        before, begin, rest = page.partition(_BEGIN.format(name))
        if begin:
            page = before + begin + table(name, run, rows) + _END + rest.partition(_END)[2]
    return page


def write_pages(run: RunResult, rows: Sequence[Row]) -> None:
    """Write the tables of all pages. Raises RowMissing, and writes nothing then."""
    pages = {ROOT / name: filled((ROOT / name).read_text(encoding="utf-8"), run, rows) for name in PAGES}
    for path, page in pages.items():
        path.write_text(page, encoding="utf-8")


def check_age(run: RunResult, commits: int) -> None:
    """Check that a release with so many commits may have the figures. Raises StaleFigures."""
    age = commits - int(run.facts[COMMITS])
    if age > AGE_MAX:
        message = f"the figures in README are {age:,} commits old, but must be at most {AGE_MAX:,}: `make figures`"
        raise StaleFigures(message)
