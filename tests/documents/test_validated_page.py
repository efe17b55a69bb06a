"""The page of clients is written from the report of their tests."""

from pathlib import Path

from documents.validated_page import VERSIONS, outcomes, rows
from drivers.every_client import TRANSACTIONAL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "validated.md"
REPORT = """<testsuites><testsuite>
<testcase classname="tests.compat.test_a" name="test_it_reads[all-kafkajs]"/>
<testcase classname="tests.compat.test_a" name="test_it_reads[1-kafkajs]"><failure message="no"/></testcase>
<testcase classname="tests.compat.test_a" name="test_it_reads[java-3]@x"><skipped message="no JRE"/></testcase>
<testcase classname="tests.compat.test_a" name="test_it_reads[java]@x"/>
</testsuite></testsuites>
"""


def test_a_behaviour_that_failed_once_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT, encoding="utf-8")
    found = outcomes(tmp_path / "report.xml")
    assert found == {
        ("kafkajs", "it reads"): ["passed", "failed"],
        ("java-3", "it reads"): ["not run"],
        ("java", "it reads"): ["passed"],
    }
    assert [line.split(" | ")[-1] for line in rows(found)] == ["passed |\n", "not run |\n", "failed, passed |\n"]


def test_every_client_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in (*TRANSACTIONAL, "kcat") if f"\n| {name} |" not in page] == []


def test_the_page_names_the_versions_that_are_tried_now() -> None:
    """Another version of a client calls for `make validated`; kcat is the machine's own."""
    lines = [line.split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.endswith(" |")]
    written = {client.removeprefix("| "): version for client, version, *_ in lines[1:]}
    del written["kcat"]
    assert written == {client: version() for client, version in VERSIONS.items() if client != "kcat"}
