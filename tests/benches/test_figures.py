"""The figures in README and how-fast.md are those of the newest run, and no release has old ones."""

import pytest

from bench.figures import (
    AGE_MAX,
    COMMITS,
    PAGES,
    RESULT,
    ROOT,
    TABLES,
    RowMissing,
    StaleFigures,
    check_age,
    filled,
    is_shown,
    table,
)
from bench.results import RowResult, RunResult, load
from bench.row import SUBJECT
from bench.rows import all_rows


def run(commits: int = 100) -> RunResult:
    """Return a run in which each metric of ours is 2, and each of Kafka's 4; ratios of producers differ."""
    rows = []
    for number, row in enumerate(filter(is_shown, all_rows())):
        names = [metric.name for metric in row.group.metrics]
        mine = 2.0 + number * ("produce" in row.key)
        rows.append(RowResult(row.key, {SUBJECT: [dict.fromkeys(names, mine)], "kafka": [dict.fromkeys(names, 4.0)]}))
    return RunResult("2026-01-01", "quick", "abc", {COMMITS: str(commits)}, {}, rows)


def test_a_table_has_the_medians_of_both_or_the_range_of_ratios() -> None:
    lines = table("three brokers", run(), all_rows()).splitlines()
    assert lines[4] == "| round trip of one record | 0.0 ms | 0.0 ms |"
    assert lines[7] == "| a new leader answers after one was restarted | 2.0 ms | 4.0 ms |"
    assert lines[2].startswith("| producers, three replicas, `acks=all` | ")
    assert lines[2].endswith(" times Kafka's MB/s |  |")


def test_only_the_lines_between_the_comments_are_written() -> None:
    page = "before\n<!-- figures: short -->\nold\n<!-- end of figures -->\nafter\n"
    written = filled(page, run(), all_rows())
    assert (written.startswith("before\n<!-- "), written.endswith("<!-- end of figures -->\nafter\n")) == (True, True)
    assert "old" not in written
    assert filled(written, run(), all_rows()) == written


def test_a_run_without_a_row_writes_no_table() -> None:
    incomplete = run()
    incomplete.rows.pop(0)
    with pytest.raises(RowMissing, match="the run has no result of start"):
        table("short", incomplete, all_rows())


def test_the_pages_have_the_figures_of_the_last_run() -> None:
    measured = load(RESULT)
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in PAGES]
    assert [filled(page, measured, all_rows()) for page in pages] == pages
    assert all(any(f"<!-- figures: {name} -->" in page for page in pages) for name in TABLES)


def test_a_release_with_old_figures_is_refused() -> None:
    check_age(run(100), 100 + AGE_MAX)
    with pytest.raises(StaleFigures, match="are 3,001 commits old, but must be at most 3,000: `make figures`"):
        check_age(run(100), 101 + AGE_MAX)
