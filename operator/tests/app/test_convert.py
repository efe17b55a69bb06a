"""`barnabas convert`, as a user calls it."""

import io
from pathlib import Path

import pytest

from barnabas_operator.app.convert import main

TOPIC = """
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata: {name: gates, labels: {strimzi.io/cluster: airport}}
spec: {partitions: 3, mirror: true}
"""


def test_convert_prints_manifests_to_stdout_and_notes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gates.yaml").write_text(TOPIC)
    (tmp_path / "readme.txt").write_text("not a manifest")
    assert main(["-f", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:4] == ["kind: Topic", "metadata:", "  name: gates"]
    where = f"{tmp_path / 'gates.yaml'}:5:23"
    assert printed.err == f"{where}: KafkaTopic gates: spec.mirror is left out: the field has no counterpart\n"


def test_convert_prints_no_manifest_if_one_is_invalid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TOPIC}---\n{TOPIC.replace('3', 'three')}"))
    assert main(["-f", "-"]) == 1
    error = "-:11:20: KafkaTopic gates: spec.partitions is 'three' (string); allowed: an integer\n"
    assert capsys.readouterr() == ("", error)


def test_convert_names_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-f", "/nowhere/kafka.yaml"]) == 1
    assert "/nowhere/kafka.yaml" in capsys.readouterr().err
