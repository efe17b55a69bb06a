"""A report's folder: it is complete or missing, and only the run that wrote it may replace it."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from barnabas_jobs.jobs.location import new_report
from barnabas_jobs.planning.errors import JobFailed
from harness.deadline import PATIENCE_S
from harness.server_process import bound_to_us

OTHERS = [None, "run-2", "run"]
KILLED = """
import os, signal, sys
from barnabas_jobs.jobs.location import new_report

with new_report(sys.argv[1], "run-1") as folder:
    (folder / "skew.json").write_text("of the first try")
    if sys.argv[2] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def write(path: Path, run: str | None, text: str) -> None:
    with new_report(str(path), run) as folder:
        (folder / f"{text}.json").write_text(text, encoding="utf-8")


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_retry_of_a_killed_run_replaces_its_report(when: str, tmp_path: Path) -> None:
    """The run is killed while it writes the report, or when the report is complete but the run has not ended."""
    report = tmp_path / "report"
    command = [sys.executable, "-c", KILLED, str(report), when]
    killed = subprocess.run(bound_to_us(command), env=os.environ, check=False, timeout=PATIENCE_S)
    assert killed.returncode == -signal.SIGKILL
    assert report.exists() == (when == "after")
    write(report, "run-1", "second")
    assert names(report) == ["second.json"]
    assert names(tmp_path) == ["report"]


@pytest.mark.parametrize("run", OTHERS)
def test_the_report_of_another_run_is_kept(run: str | None, tmp_path: Path) -> None:
    report = tmp_path / "report"
    write(report, "run-1", "first")
    with pytest.raises(JobFailed, match="exists already; name another folder, or remove this folder"):
        write(report, run, "second")
    assert names(report) == ["first.json"]


@pytest.mark.parametrize("run", OTHERS)
def test_a_report_made_by_hand_and_a_foreign_folder_are_kept(run: str | None, tmp_path: Path) -> None:
    report = tmp_path / "report"
    write(report, None, "first")
    assert [each.name for each in report.iterdir()] == ["first.json"]
    other = tmp_path / "other"
    other.mkdir()
    for taken in (report, other):
        with pytest.raises(JobFailed, match="exists already"):
            write(taken, run, "second")


def test_the_report_of_an_earlier_try_is_kept_if_the_retry_fails(tmp_path: Path) -> None:
    """The report is complete and may be the only one."""
    report = tmp_path / "report"
    write(report, "run-1", "first")
    with pytest.raises(JobFailed, match="no broker answers"), new_report(str(report), "run-1"):
        raise JobFailed("no broker answers")
    assert names(report) == ["first.json"]
    assert list(tmp_path.iterdir()) == [report]
    write(report, "run-1", "third")
    assert sorted(each.name for each in report.iterdir()) == [".run", "third.json"]


def test_a_failed_try_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="no such topic"), new_report(str(tmp_path / "report"), "run-1"):
        raise JobFailed("no such topic")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("runs", [(None, None), ("run-1", "run-2"), ("run-1", "run-1"), (None, "run-2")])
def test_two_runs_do_not_write_one_report_at_once(runs: tuple[str | None, str | None], tmp_path: Path) -> None:
    """The operator's workers of two Clusters, for example, do not know each other's runs."""
    report = tmp_path / "report"
    with new_report(str(report), runs[0]) as folder:
        (folder / "first.json").touch()
        with pytest.raises(JobFailed, match=f"report={report}: another run is writing this report; wait until"):
            write(report, runs[1], "second")
    assert names(report) == ["first.json"]
    assert names(tmp_path) == ["report"]
    assert list(tmp_path.iterdir()) == [report]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_report_can_be_written_on_a_file_system_without_locks(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    report = tmp_path / "report"
    for text in ("first", "second"):
        write(report, "run-1", text)
        assert names(report) == [f"{text}.json"]
    assert list(tmp_path.iterdir()) == [report]


def test_a_run_that_opened_another_runs_partial_folder_does_not_write_into_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report"
    lock = fcntl.flock

    def late(file: IO[str], how: int) -> None:
        monkeypatch.undo()
        lock(file, how)
        (tmp_path / ".report.partial").rename(report)
        (report / "first.json").touch()

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(JobFailed, match="another run is writing this report"):
        write(report, None, "second")
    assert names(report) == ["first.json"]
