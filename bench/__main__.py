"""`python -m bench`: runs the rows beside each other, or renders a saved run again."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import figures, machine, plot, report, results
from bench.clusters import CLUSTER_KINDS
from bench.peers import BEFORE, peer_kinds, sources_of
from bench.pool import Pool
from bench.results import RowResult, RunResult
from bench.row import Row
from bench.rows import all_rows, rows_before
from bench.run import measure
from bench.scenarios.stand import BEFORE_AND_AFTER, FULL, QUICK, Clients, Limits, Stand
from bench.secured_broker import SECURED_KINDS
from bench.secured_cluster import SECURED_CLUSTER_KINDS
from bench.status import Status

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE / "results"
REASONS: Final = HERE / "reasons.toml"
PROTOTYPE: Final = HERE.parent.parent / "shared/prototype"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs and fewer rows, at most 18 minutes")
    parser.add_argument(
        "--only", metavar="PATTERN", action="append", help="rows whose key fits, such as 'raw.*'; may be given again"
    )
    parser.add_argument("--repeats", type=int, help="runs of each row on each peer")
    parser.add_argument(
        "--minutes", type=float, help="begin no row later than that; 16 in a quick run, 75 in a full one"
    )
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat(), help="the date that names the results")
    parser.add_argument("--name", help="the results' file name; without it DATE-quick or DATE-full")
    parser.add_argument("--render", type=Path, metavar="JSON", help="only write the table and picture of a saved run")
    parser.add_argument(
        "--prototype",
        type=Path,
        default=Path(os.environ.get("PROTOTYPE_DIR", PROTOTYPE)),
        help="the folder of the prototype that the raw rows compare with",
    )
    parser.add_argument(
        "--before", metavar="COMMIT", help="only the raw requests, beside the broker of that commit in place of others"
    )
    parser.add_argument(
        "--figures", action="store_true", help="the rows that README and docs/explanation/how-fast.md show, for them"
    )
    parser.add_argument("--list", action="store_true", help="print the rows' keys")
    return parser.parse_args()


def _mode(options: argparse.Namespace) -> str:
    if options.before:
        return "before"
    return "quick" if options.quick or options.figures else "full"


def _all_rows(options: argparse.Namespace) -> list[Row]:
    return rows_before() if options.before else all_rows()


def _reasons() -> dict[str, str]:
    return dict(tomllib.loads(REASONS.read_text(encoding="utf-8"))["why"])


def _render(run: RunResult, path: Path, prototype: Path) -> str:
    """Write PATH.md beside PATH.json; return the page."""
    titles = {kind.name: kind.title for kind in peer_kinds(prototype).values()}
    page = report.markdown(run, [*all_rows(), *rows_before()], titles, _reasons())
    path.with_suffix(".md").write_text(page, encoding="utf-8")
    return page


def _limits(options: argparse.Namespace) -> Limits:
    chosen = {"quick": QUICK, "full": FULL, "before": BEFORE_AND_AFTER}[_mode(options)]
    if options.repeats is not None:
        chosen = replace(chosen, repeats=options.repeats, repeats_slow=options.repeats)
    if options.minutes is not None:
        chosen = replace(chosen, budget_s=options.minutes * 60)
    return chosen


def _new_run(options: argparse.Namespace, limits: Limits) -> RunResult:
    facts = {**machine.facts(), "repeats": str(limits.repeats), figures.COMMITS: machine.commits()}
    if options.before:
        versions = {"the commit before": options.before}
    else:
        kinds = peer_kinds(options.prototype).values()
        versions = {kind.title: kind.version() for kind in kinds if kind.has_topics and kind.name != BEFORE}
    return RunResult(options.date, _mode(options), machine.commit(), facts, versions)


def _chosen(options: argparse.Namespace, limits: Limits) -> list[Row]:
    rows = [row for row in _all_rows(options) if any(fnmatch(row.key, each) for each in options.only or ["*"])]
    if options.figures:
        return [row for row in rows if figures.is_shown(row)]
    return rows if limits.rows_all else [row for row in rows if row.quick]


def _measure(options: argparse.Namespace, path: Path, console: Console) -> RunResult:
    limits = _limits(options)
    rows = _chosen(options, limits)
    run = _new_run(options, limits)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    by_key = {row.key: row for row in rows}
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(rows))

        def show(text: str) -> None:
            progress.update(task, description=text)
            if not console.is_terminal:
                console.log(text, highlight=False, markup=False)

        def keep(result: RowResult) -> None:
            run.rows.append(result)
            run.save(path)
            _render(run, path, options.prototype)
            progress.advance(task)
            console.print(_line(by_key[result.key], result), highlight=False, markup=False)

        with _stand(options, limits, Status(show)) as stand:
            measure(stand, rows, keep)
        run.facts["load average at the end"] = machine.load_average()
        run.save(path)
    return run


@contextmanager
def _stand(options: argparse.Namespace, limits: Limits, status: Status) -> Iterator[Stand]:
    """Yield the means of a run; at the end, stop what was started and remove its files."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    before = sources_of(options.before, folder / "sources") if options.before else None
    kinds = peer_kinds(options.prototype, before)
    brokers = Pool({name: kind.prepare for name, kind in kinds.items()}, folder)
    clusters = Pool({name: kind.prepare for name, kind in CLUSTER_KINDS.items()}, folder / "clusters")
    secured = Pool(SECURED_KINDS, folder / "secured")
    secured_clusters = Pool(SECURED_CLUSTER_KINDS, folder / "secured-clusters")
    clients = Clients(options.prototype)
    stand = Stand(kinds, brokers, clusters, secured, secured_clusters, clients, limits, status)
    try:
        yield stand
    finally:
        clients.close()
        stand.clear()
        shutil.rmtree(folder, ignore_errors=True)


def _line(row: Row, result: RowResult) -> str:
    """Return one line for the terminal: the row's first two metrics."""
    cells = [f"{metric.title} {report.cell(metric, result, row.group.peer)}" for metric in row.group.metrics[:2]]
    return f"{row.key}: " + "; ".join([*cells, report.aim_cell(row, result), (result.problem or "")[:200]]).strip("; ")


def _end(_signal: int, _frame: object) -> None:
    sys.exit(1)


def _write_pages(run: RunResult, console: Console) -> int:
    """Write the tables of README and how-fast.md; return 1 if a row that they show was not measured."""
    try:
        figures.write_pages(run, all_rows())
    except figures.RowMissing as missing:
        console.print(f"no page was written: {missing}", highlight=False)
        return 1
    return 0


def main() -> int:
    """Measure, or with --render only write the page and the picture again."""
    options = _arguments()
    console = Console(log_path=False)
    signal.signal(signal.SIGTERM, _end)
    if options.list:
        console.print("\n".join(row.key for row in _all_rows(options)), highlight=False)
        return 0
    if options.render:
        path = options.render
        run = results.load(path)
    else:
        RESULTS.mkdir(exist_ok=True)
        name = figures.RESULT.stem if options.figures else f"{options.date}-{_mode(options)}"
        path = RESULTS / f"{options.name or name}.json"
        run = _measure(options, path, console)
    _render(run, path, options.prototype)
    if path == figures.RESULT:
        return _write_pages(run, console)
    plot.draw(run, [*all_rows(), *rows_before()], path.with_suffix(".png"))
    console.print(f"written: {path.with_suffix('.md')} (.json, .png)", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
