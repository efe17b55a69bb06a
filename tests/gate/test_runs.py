"""A run of stages: in their order, and as far as they pass."""

from pathlib import Path

from gate.__main__ import Run
from gate.stages import Stage


def test_stages_run_after_those_that_they_need_and_what_they_say_is_kept(tmp_path: Path) -> None:
    run = Run([Stage("second", f"cat {tmp_path}/first.log", ("first",)), Stage("first", "echo one")], tmp_path)
    run.all_stages()
    assert [(one.stage, one.code) for one in run.outcomes] == [("first", 0), ("second", 0)]
    assert (tmp_path / "second.log").read_text("utf-8") == "one\n"


def test_a_stage_that_fails_ends_no_other_and_none_begins_that_needs_it(tmp_path: Path) -> None:
    run = Run([Stage("broken", "false"), Stage("other", "true"), Stage("later", "true", ("broken",))], tmp_path)
    run.all_stages()
    assert {one.stage: one.code for one in run.outcomes} == {"broken": 1, "other": 0}
