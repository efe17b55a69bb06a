"""The page of validated clients and programs is written from the reports of their tests."""

from pathlib import Path

import pytest

from documents.validated_page import (
    Behaviour,
    Case,
    Program,
    Table,
    cases,
    client_of,
    differences,
    page,
    table,
)
from documents.validated_versions import VERSIONS
from drivers.every_client import TRANSACTIONAL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "validated.md"
REPORT = """<testsuites><testsuite>
<testcase classname="tests.compat.test_a" name="test_it_reads[all-kafkajs]"/>
<testcase classname="tests.compat.test_a" name="test_it_reads[1-kafkajs]"><failure message="no"/></testcase>
<testcase classname="spark-on-k8s.tests.test_b" name="test_it_reads[java-3]@x"><skipped message="no JRE"/></testcase>
</testsuite></testsuites>
"""
CLIENTS = ("kafkajs", "java", "java-3")


def test_a_report_has_the_result_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT, encoding="utf-8")
    assert list(cases(tmp_path / "report.xml")) == [
        Case("tests/compat/test_a.py", "test_it_reads", "all-kafkajs", "passed"),
        Case("tests/compat/test_a.py", "test_it_reads", "1-kafkajs", "failed"),
        Case("spark-on-k8s/tests/test_b.py", "test_it_reads", "java-3", "not run"),
    ]


def test_a_test_id_belongs_to_the_client_with_the_longest_matching_name() -> None:
    assert [client_of(each, CLIENTS) for each in ("1-java", "java-3", "kafkajs-PLAIN", "gzip")] == [
        "java",
        "java-3",
        "kafkajs",
        "",
    ]


def test_a_failed_test_is_shown_beside_passed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CLIENTS, "kcat"):
        monkeypatch.setitem(VERSIONS, name, lambda: "1.0")
    rows = Table(
        {"java": "Java"}, [Behaviour("a.py", "test_reads", "read")], [Program("kcat", "kcat", "write", ["b.py"])]
    )
    ran = [Case("a.py", "test_reads", each, result) for each, result in (("java-1", "passed"), ("java-2", "failed"))]
    text = page(rows, ran)
    assert "\n| read | 1 failed, 1 passed |\n" in text
    assert "| kcat | 1.0 | write | `b.py` | 1 not run |" in text


def test_the_page_agrees_with_the_table_and_has_every_client() -> None:
    rows = table()
    assert list(differences(rows, PAGE.read_text("utf-8"))) == []
    assert set(TRANSACTIONAL) == set(rows.clients)
