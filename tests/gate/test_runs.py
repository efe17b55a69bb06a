"""A run of stages: their order, and what happens if one fails."""

from pathlib import Path

import pytest

from gate.__main__ import Run
from gate.stages import Stage


def test_stages_run_in_order_of_their_needs_and_their_output_is_kept(tmp_path: Path) -> None:
    run = Run([Stage("second", f"cat {tmp_path}/first.log", ("first",)), Stage("first", "echo one")], tmp_path)
    run.all_stages()
    assert [(one.stage, one.code) for one in run.outcomes] == [("first", 0), ("second", 0)]
    assert (tmp_path / "second.log").read_text("utf-8") == "one\n"


def test_a_failed_stage_prevents_only_the_stages_that_need_it(tmp_path: Path) -> None:
    run = Run([Stage("broken", "false"), Stage("other", "true"), Stage("later", "true", ("broken",))], tmp_path)
    run.all_stages()
    assert {one.stage: one.code for one in run.outcomes} == {"broken": 1, "other": 0}


def test_mypy_keeps_what_it_knows_of_unchanged_files_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout has no cache of mypy; it compares files by their hashes if their times differ."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Run([Stage("environment", "printenv MYPY_CACHE_DIR")], tmp_path).all_stages()
    assert (tmp_path / "environment.log").read_text("utf-8") == f"{tmp_path}/barnabas-e2e/mypy\n"
