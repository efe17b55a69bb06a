"""The order in which stages of `.ci/run` may start."""

from gate.stages import AT_ONCE_MAX, FAILURES_SHOWN, STAGES, Outcome, Stage, due, failures, table

WANTED = (Stage("a", "true"), Stage("b", "true", ("a",)), Stage("c", "true", ("a",)), Stage("d", "true", ("b", "c")))


def ended(name: str, code: int = 0) -> dict[str, Outcome]:
    return {name: Outcome(name, code, 0.0, 60.0, 30.0)}


def names(stages: list[Stage]) -> list[str]:
    return [stage.name for stage in stages]


def test_a_stage_starts_when_the_stages_that_it_needs_have_passed() -> None:
    assert names(due(WANTED, {}, [])) == ["a"]
    assert names(due(WANTED, ended("a"), ["b"])) == ["c"]
    assert names(due(WANTED, ended("a") | ended("b") | ended("c"), [])) == ["d"]


def test_a_stage_does_not_start_if_a_stage_that_it_needs_has_failed() -> None:
    assert due(WANTED, ended("a") | ended("b", 2) | ended("c"), []) == []
    assert names(due(WANTED, ended("a") | ended("b", 2), [])) == ["c"]


def test_the_number_of_stages_that_run_at_once_is_limited() -> None:
    many = [Stage(str(number), "true") for number in range(9)]
    assert names(due(many, {}, [])) == [str(number) for number in range(AT_ONCE_MAX)]


def test_each_stage_needs_only_stages_before_it() -> None:
    """Otherwise a stage would never start."""
    before: set[str] = set()
    for stage in STAGES:
        assert before >= set(stage.needs)
        before.add(stage.name)


def test_an_argument_of_a_stage_may_have_blanks() -> None:
    assert Stage("a", "make proof PROOF='--topics 20 --short'").words == ["make", "proof", "PROOF=--topics 20 --short"]


def test_the_table_names_the_stage_that_failed() -> None:
    lines = list(table([*ended("a").values(), *ended("b", 2).values()]))
    assert [line for line in lines if "FAILED" in line] == ["    0.0     1.0     0.5  b  FAILED: exit code 2"]
    assert lines[-1].split() == ["1.0", "1.0", "in", "all"]


def test_the_failures_of_a_stage_are_found_in_its_output() -> None:
    assert list(failures("b", "a line\nFAILED t.py::test_x - it broke\nERROR t.py::test_y\n1 passed\n")) == [
        "[b] FAILED t.py::test_x - it broke",
        "[b] ERROR t.py::test_y",
    ]
    many = list(failures("b", "FAILED t.py::test_x\n" * (FAILURES_SHOWN + 2)))
    assert len(many) == FAILURES_SHOWN + 1
    assert many[-1] == "[b] and 2 more"
