"""The costs of tests are reported by folder and compared with budgets."""

from gate.costs import BUDGETS, OTHERS, SLOWEST, Cost, from_lines, parts, read_budgets, report, to_line
from gate.pytest_costs import without_group

BROKER = Cost("broker/tests/wire/test_a.py::test_one", 2.0, 30.0)
DEAR = Cost("broker/tests/wire/test_a.py::test_two", 40.0, 45.0)
FILE = Cost("tests/faults/test_b.py::test_three[x]", 3.0, 5.0)
ELSEWHERE = Cost("docs/test_c.py::test_four", 1.0, 1.0)
COSTS = [BROKER, DEAR, FILE, ELSEWHERE]
LIMITS = {"broker/tests": 60.0, "tests": 600.0, "tests/faults/test_b.py": 4.0}


def test_a_test_counts_for_the_longest_path_with_a_budget() -> None:
    found = [(part.name, part.tests, part.processor_s, part.is_above) for part in parts(COSTS, LIMITS)]
    assert found == [
        ("broker/tests", 2, 75.0, True),
        ("tests/faults/test_b.py", 1, 5.0, True),
        (OTHERS, 1, 1.0, False),
    ]


def test_the_report_has_the_slowest_tests_first_and_names_exceeded_budgets() -> None:
    lines = list(report(COSTS * SLOWEST, LIMITS))
    assert lines[1 : SLOWEST + 1] == [f"   40.0    45.0  {DEAR.test}"] * SLOWEST
    assert lines[-1] == "above their budgets (budgets.toml): broker/tests, tests/faults/test_b.py"
    assert list(report([ELSEWHERE], LIMITS))[-1] == "above their budgets (budgets.toml): none"


def test_costs_are_parsed_from_the_lines_that_were_written() -> None:
    assert from_lines("".join(map(to_line, COSTS))) == COSTS


def test_each_budget_belongs_to_an_existing_path() -> None:
    """Otherwise a folder that is renamed would have no budget."""
    root = BUDGETS.parents[2]
    assert [name for name in read_budgets() if not (root / name).exists()] == []


def test_the_group_is_removed_from_the_name_of_a_test() -> None:
    assert without_group("tests/a/test_b.py::test_c[x@y]@spark") == "tests/a/test_b.py::test_c[x@y]"
    assert without_group("tests/a/test_b.py::test_c[x@y]") == "tests/a/test_b.py::test_c[x@y]"
