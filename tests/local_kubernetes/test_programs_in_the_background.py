"""Programs that stay in the background are ended by who comes later, also where their starter was killed."""

import os
from pathlib import Path

from harness.deadline import wait_for
from local_kubernetes.daemons import Daemons


def test_a_program_whose_starter_was_killed_before_it_wrote_its_id_is_ended_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started = Daemons(folder, outlive=True)
    started.start("sleeper", ["sh", "-c", "sleep 60 & wait"])
    pid = started.pid("sleeper")
    children = Path(f"/proc/{pid}/task/{pid}/children")
    child = wait_for(lambda: children.read_text(encoding="ascii").split())[0]
    (folder / "sleeper.pid").unlink()
    Daemons(folder, outlive=True).stop_all()
    assert not started.is_running("sleeper")
    assert not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()


def test_programs_of_another_folder_go_on(tmp_path: Path) -> None:
    other = Daemons(tmp_path / "run-of-another", outlive=False)
    other.start("sleeper", ["sleep", "60"])
    pid = other.pid("sleeper")
    Daemons(tmp_path / "run", outlive=True).stop_all()
    os.kill(pid, 0)
    assert other.is_running("sleeper")
    other.stop_all()
    assert not other.is_running("sleeper")
