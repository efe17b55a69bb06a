"""The selection of tests, their order, and their groups for one worker."""

from pathlib import Path

import pytest

from gate.pytest_selection import GROUPS, group_of, part_of
from gate.quarantine import read_quarantine

ROOT = Path(__file__).resolve().parents[2]


def test_a_test_with_an_expensive_fixture_is_in_its_group() -> None:
    assert group_of(["tmp_path", "api_server", "controllers"]) == "controllers"
    assert group_of(["tmp_path"]) is None


def test_only_tests_of_broker_and_operator_without_shared_fixtures_can_run_before_the_builds() -> None:
    assert part_of("broker/tests/wire/test_a.py::test_b", ["tmp_path"]) == "floors"
    assert part_of("broker/tests/metadata/test_a.py::test_b", ["api_server"]) == "rest"
    assert part_of("tests/cluster/test_a.py::test_b", ["tmp_path"]) == "rest"


@pytest.mark.parametrize("fixture", GROUPS)
def test_each_expensive_fixture_exists(fixture: str) -> None:
    """Otherwise the tests of a renamed fixture would be in no group."""
    folders = [ROOT / "spark-on-k8s/tests", ROOT / "tests/e2e", ROOT / "tests/local_kubernetes", ROOT / "tests/compat"]
    assert any(f"def {fixture}(" in path.read_text("utf-8") for folder in folders for path in folder.glob("*.py"))


def test_each_quarantined_test_exists_and_has_a_date_and_a_symptom() -> None:
    for test, about in read_quarantine().items():
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text("utf-8")
        assert set(about) == {"since", "symptom"}
