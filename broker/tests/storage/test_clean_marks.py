"""The clean-shutdown marks that a start accepts."""

from pathlib import Path

import pytest
from log_manager_samples import CONFIG, TOPIC_ID, flights, manager, started
from storage_samples import append, batch

from barnabas_broker.storage.disk.checkpoints import LastIncarnation
from barnabas_broker.storage.disk.files import PosixFileSystem


def shut_down(path: Path, broker_epoch: int) -> None:
    logs = started(path)
    if not logs.get(flights(0)):
        append(logs.create(flights(0), TOPIC_ID, CONFIG), batch(2))
    logs.shutdown(lambda _: None, broker_epoch)


@pytest.mark.parametrize(("mark_epochs", "is_clean"), [((5, -1), True), ((6,), False), ((-1,), False)])
def test_only_the_clean_shutdown_mark_of_the_last_registered_incarnation_counts(
    tmp_path: Path, mark_epochs: tuple[int, ...], is_clean: bool
) -> None:
    shut_down(tmp_path, 5)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":5}'
    logs = manager(tmp_path)
    logs.load(last_incarnation=LastIncarnation(mark_epochs))
    assert logs.was_clean is is_clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("mark", [b"", b"{", b"[]", b'{"version":0}', b'{"version":0,"brokerEpoch":"x"}'])
def test_a_damaged_clean_shutdown_mark_is_ignored(tmp_path: Path, mark: bytes) -> None:
    shut_down(tmp_path, 5)
    (tmp_path / ".kafka_cleanshutdown").write_bytes(mark)
    assert not started(tmp_path).was_clean


def test_a_start_removes_the_clean_shutdown_mark_and_syncs_that_before_other_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut_down(tmp_path, -1)
    steps: list[str] = []
    remove, sync_dir = PosixFileSystem.remove, PosixFileSystem.sync_dir

    def removed(self: PosixFileSystem, path: str) -> None:
        steps.append(path)
        remove(self, path)

    def synced(self: PosixFileSystem, path: str) -> None:
        steps.append(path)
        sync_dir(self, path)

    monkeypatch.setattr(PosixFileSystem, "remove", removed)
    monkeypatch.setattr(PosixFileSystem, "sync_dir", synced)
    started(tmp_path)
    assert steps[:2] == [str(tmp_path / ".kafka_cleanshutdown"), str(tmp_path)]
