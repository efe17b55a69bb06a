"""`make kubernetes` on a machine that lacks something names it and the command that installs it; nothing starts."""

import os
import sys
from pathlib import Path

import pytest

from local_kubernetes.__main__ import main


def _up(folder: Path, monkeypatch: pytest.MonkeyPatch, user: int) -> int:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(sys, "argv", ["kubernetes", f"--folder={folder}", "up"])
    return main()


def test_up_without_root_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _up(tmp_path / "cluster", monkeypatch, user=1000) == 1
    assert "needs root" in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()


def test_up_without_programs_names_them_and_the_command_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _up(tmp_path / "cluster", monkeypatch, user=0) == 1
    told = capsys.readouterr().err
    assert "containerd" in told
    assert "iptables" in told
    assert "`make e2e-tools`" in told
    assert not (tmp_path / "cluster").exists()


def test_up_without_a_build_of_kubernetes_names_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("local_kubernetes.__main__.check_machine", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _up(tmp_path / "cluster", monkeypatch, user=0) == 1
    assert "`make e2e-tools` builds them" in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()


def test_down_without_a_cluster_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("local_kubernetes.__main__.check_machine", lambda: None)
    monkeypatch.setattr(sys, "argv", ["kubernetes", f"--folder={tmp_path / 'cluster'}", "down"])
    assert main() == 0
    assert "nothing to end" in capsys.readouterr().out
