"""Folders of the machine on which nodes mount are removed by the last cluster, even if another one made them."""

from pathlib import Path

import pytest

from local_kubernetes.machine_folders import MachineFolders


def test_folders_made_by_several_clusters_are_removed_by_the_last_one(tmp_path: Path) -> None:
    record = tmp_path / "record"
    MachineFolders(record).make([tmp_path / "lib" / "kubelet"])
    MachineFolders(record).make([tmp_path / "lib" / "kubelet", tmp_path / "log" / "pods"])
    MachineFolders(record).take_back()
    assert list(tmp_path.iterdir()) == []


def test_folders_that_existed_before_or_were_filled_by_others_are_kept(tmp_path: Path) -> None:
    record, there, filled = tmp_path / "record", tmp_path / "lib", tmp_path / "log" / "pods"
    there.mkdir()
    folders = MachineFolders(record)
    folders.make([there / "kubelet", filled])
    (filled / "web").touch()
    folders.take_back()
    assert sorted(tmp_path.iterdir()) == [there, filled.parent]
    assert list(there.iterdir()) == []


def test_folders_of_a_killed_start_are_recorded_and_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, made = tmp_path / "record", Path.mkdir

    def killed_after_the_second(path: Path, *arguments: object, **named: object) -> None:
        made(path, exist_ok=True, parents=True)
        if path.name == "second":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", killed_after_the_second)
        with pytest.raises(KeyboardInterrupt):
            MachineFolders(record).make([tmp_path / "first", tmp_path / "second", tmp_path / "third"])
    assert (tmp_path / "second").exists()
    MachineFolders(record).take_back()
    assert list(tmp_path.iterdir()) == []
